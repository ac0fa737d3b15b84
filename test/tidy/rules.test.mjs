// Tests of the rules: what each must report, and what it must accept.
import assert from 'node:assert/strict';
import test from 'node:test';

import * as rules from './rules.mjs';

test('comments and literals are blanked, lines stay', () => {
  const text = 'a /* "x\n*/ b // c\n"d \\" /* e" \'"\' f\n';
  assert.equal(rules.stripC(text, { literals: false }), 'a      \n   b     \n"d \\" /* e" \'"\' f\n');
  assert.equal(rules.stripC(text, { literals: true }), 'a      \n   b     \n"         " \' \' f\n');
  assert.equal(rules.stripC('a /* open', { literals: true }), 'a        ');
});

test('each layer includes what its rule allows and nothing else', () => {
  const allowed = [
    ['src/base/str.c', '<string.h>'],
    ['src/base/str.c', '"base/str.h"'],
    ['src/base/config.c', '<ini.h>'],
    ['src/run/mailbox.h', '<uv.h>'],
    ['src/run/mailbox.h', '"base/task.h"'],
    ['src/core/event.h', '"base/str.h"'],
    ['src/core/hmac.c', '<openssl/evp.h>'],
    ['src/port/ledger.h', '"core/event.h"'],
    ['src/hot/redis.c', '<hiredis/hiredis.h>'],
    ['src/ledger/sqlite.c', '<sqlite3.h>'],
    ['src/ledger/postgres.c', '<libpq-fe.h>'],
    ['src/feed/kafka.c', '<librdkafka/rdkafka.h>'],
    ['src/service/events.c', '"run/mailbox.h"'],
    ['src/net/conn.c', '<uv.h>'],
    ['src/api/event_json.c', '<jansson.h>'],
    ['src/api/event_json.c', '"service/events.h"'],
    ['src/cli/serve.c', '"api/api.h"'],
    ['src/cli/serve.c', '<sqlite3.h>'],
    ['src/main.c', '"ledger/sqlite.h"'],
    ['src/main.c', '"cli/cli.h"'],
  ];
  for (const [path, header] of allowed)
    assert.deepEqual(rules.checkIncludes(path, `#include ${header}\n`), []);

  const refused = [
    ['src/base/str.c', '<ini.h>', /src\/base\/str\.c may use libc only/],
    ['src/base/str.c', '<uv.h>', /may use libc only/],
    ['src/base/str.c', '"run/arena.h"', /base may include base only/],
    ['src/run/worker.c', '"core/event.h"', /run may include run, base only/],
    ['src/core/event.c', '"run/arena.h"', /core may include core, base only/],
    ['src/core/event.c', '<openssl/evp.h>', /may use libc only/],
    ['src/port/ledger.h', '"run/mailbox.h"', /port may include port, core, base only/],
    ['src/ledger/sqlite.c', '<hiredis/hiredis.h>', /may use libc, sqlite3\.h, libpq-fe\.h only/],
    ['src/ledger/sqlite.c', '"service/events.h"', /ledger may include/],
    ['src/service/events.c', '"ledger/sqlite.h"', /service may include/],
    ['src/service/events.c', '<uv.h>', /may use libc only/],
    ['src/net/conn.c', '"core/event.h"', /net may include net, run, base only/],
    ['src/net/conn.c', '<jansson.h>', /may use libc, uv\.h only/],
    ['src/api/api.c', '"ledger/sqlite.h"', /api may include/],
    ['src/api/api.c', '"cli/cli.h"', /api may include/],
    ['src/api/api.c', '"port/ledger.h"', /api may include api, net, service, crowd, core, run, base only/],
    ['src/main.c', '<curl/curl.h>', /unknown library header/],
    ['src/main.c', '<uvx.h>', /unknown library header/],
    ['src/base/str.c', '"str.h"', /as "layer\/name\.h"/],
    ['src/base/str.c', '"../core/event.h"', /as "layer\/name\.h"/],
    ['src/net/conn.c', '"uv.h"', /as "layer\/name\.h"/],
    ['src/misc/x.c', '"base/str.h"', /no layer/],
    ['src/base/str.c', 'HEADER', /names no file/],
  ];
  for (const [path, header, why] of refused) {
    const complaints = rules.checkIncludes(path, `\n#include ${header}\n`);
    assert.equal(complaints.length, 1, `${path} ${header}`);
    assert.ok(complaints[0].startsWith(`${path}:2: includes ${header}: `), complaints[0]);
    assert.match(complaints[0], why);
  }
});

test('an include is found however it is spaced, and not in a comment', () => {
  const bad = '  #  include"core/event.h" /* why */\n';
  assert.equal(rules.checkIncludes('src/base/str.c', bad).length, 1);
  const comment = '/*\n#include "core/event.h"\n*/\n// #include <uv.h>\n';
  assert.deepEqual(rules.checkIncludes('src/base/str.c', comment), []);
});

test('a declaration is found in the file of the same name, whatever its form', () => {
  const header = [
    '#define F(x) f(x)',
    'struct a {\n    void (*done)(struct a *a);\n};',
    'typedef void handler(int a);',
    'static inline int g(int a) {\n    return g2(a);\n}',
    'int64_t *one(struct a *a,\n             void (*done)(void *to));',
    'void two(const char *format, ...)\n    __attribute__((format(printf, 1, 2)));',
  ].join('\n');
  const check = (source) => rules.checkDeclared('src/base/x.h', header, (name) => (name === 'src/base/x.c' ? source : null));
  assert.deepEqual(check('int64_t *one(struct a *a, void (*done)(void *to)) {\n}\nvoid two(const char *format, ...) {\n}\n'), []);
  assert.equal(check('/* void one(void) { } */\nstatic void two(void) {\n}\n').length, 2);
  assert.equal(check(null).length, 2);
  assert.deepEqual(rules.checkDeclared('src/hot/redis/internal.h', 'void f(void);\n', () => null), []);
});

test('a call of a port is seen, its namesakes are not', () => {
  const port = [
    'struct seats;\nstatic inline void seats_count(struct seats *s, int *c) {\n    s->ops->count(s, c);\n}\n',
    'static inline struct err *hot_ask(void) {\n}\n/* static inline void no_code(void) */\n',
  ];
  const functions = rules.portFunctions(port);
  assert.deepEqual(functions, ['seats_count', 'hot_ask']);
  const check = (text) => rules.checkPortCalls('src/api/x.c', text, functions);
  assert.deepEqual(check('    my_seats_count(a); x->seats_count(a); seats_count_of(a); /* hot_ask() */\n'), []);
  assert.equal(check('    if (hot_ask() && seats_count (s, c)) return;\n').length, 2);
});

test('a banned call is seen, its namesakes are not', () => {
  const complaints = rules.checkBanned('src/x.c', 'a = 1;\nn = atoi(s) + rand();\n');
  assert.deepEqual(complaints, [
    'src/x.c:2: calls atoi, which is banned',
    'src/x.c:2: calls rand, which is banned',
  ]);
  const fine = [
    '/* strcpy(a, b) */',
    'log("system(x)");',
    'snprintf(a, n, "%d", b);',
    'fgets(a, n, f);',
    'getrandom(p, n, 0);',
    'file_system(x);',
    'x->system(y);',
    'x.gets(y);',
    'int rand = 1;',
  ].join('\n');
  assert.deepEqual(rules.checkBanned('src/x.c', fine), []);
});

test('a guard follows the path', () => {
  assert.equal(rules.guardOf('src/base/json_out.h'), 'ADMITONE_BASE_JSON_OUT_H');
  assert.equal(rules.guardOf('test/support/x.h'), 'ADMITONE_TEST_X_H');
  const good = '/*\n * x: y.\n */\n#ifndef ADMITONE_A_X_H\n#define ADMITONE_A_X_H\n\nint x;\n\n#endif\n';
  assert.deepEqual(rules.checkGuard('src/a/x.h', good), []);
  assert.equal(rules.checkGuard('src/a/x.h', good.replace('#define', '#define X\n#define')).length, 1);
  assert.equal(rules.checkGuard('src/a/x.h', `#include <uv.h>\n${good}`).length, 1);
  assert.equal(rules.checkGuard('src/a/x.h', `${good}int y;\n`).length, 1);
});

test('columns are characters, not bytes', () => {
  assert.deepEqual(rules.checkLayout('src/x.c', `${'×'.repeat(100)}\n\n`), []);
  assert.deepEqual(rules.checkLayout('src/x.c', `${'×'.repeat(101)}\n`), [
    'src/x.c:1: 101 columns, 100 is the most',
  ]);
  assert.equal(rules.checkLayout('src/x.c', 'a;\r\n').length, 1);
});

test('a file may have as many lines as the limit says', () => {
  assert.deepEqual(rules.checkLength('src/x.c', 'a\n'.repeat(800)), []);
  assert.equal(rules.checkLength('src/x.c', 'a\n'.repeat(801)).length, 1);
});

test('templates of temporary names and pictures are not unfinished', () => {
  const [, , three] = rules.UNFINISHED;
  assert.deepEqual(rules.checkUnfinished('src/x.c', `mkdtemp("/tmp/x-${three}${three}")\n`), []);
  assert.deepEqual(rules.checkUnfinished('x.png', `\0${three}\n`), []);
});

test('a unit test may be of a header alone, and helpers live elsewhere', () => {
  const paths = ['src/base/list.h', 'test/unit/base/list_test.c', 'test/support/x.c'];
  assert.deepEqual(rules.checkMirror(paths), []);
  assert.equal(rules.checkMirror([...paths, 'test/unit/base/help.c']).length, 1);
  assert.deepEqual(rules.checkMirror(['src/run/list.c', 'test/unit/run/list_of_all_test.c']), []);
  assert.equal(rules.checkMirror(['src/run/list.c', 'test/unit/run/lists_all_test.c']).length, 1);
  assert.equal(rules.checkMirror([...paths, 'test/unit/run/list_test.c']).length, 1);
});

test('rows of a table are read across lines', () => {
  const header =
    '#define ERR_MAP(X)   \\\n    X(OK, "ok", 200, "Done")  \\\n    X(BAD,  \\\n      "bad", 400, "X(Y, \\\\"z\\\\")")\n' +
    '#define OTHER(X) X(A, "a")\n';
  assert.deepEqual(rules.tableRows(header, 'ERR_MAP'), ['ok', 'bad']);
  assert.deepEqual(rules.tableRows(header, 'NONE'), []);
  assert.deepEqual(rules.checkErrorsListed(header, 'There is `bad`.'), []);
  assert.equal(rules.checkErrorsListed(header, 'That is bad.').length, 1);
  assert.equal(rules.checkErrorsListed(header, null).length, 1);
  assert.equal(rules.checkErrorsListed('', '`bad`').length, 1);
});

test('a metric is listed only by its whole name', () => {
  const headers = [
    '#define COUNTER_MAP(X) X(A, "admitone_a_total", "", "")\n/* "admitone_gone" */\n',
    '#define ROW(X, symbol) \\\n    X(B_##symbol, \\\n      "admitone_b_s")\n',
  ];
  assert.deepEqual(rules.checkMetricsListed(headers, '| `admitone_a_total` | admitone_b_s |'), []);
  assert.equal(rules.checkMetricsListed(headers, 'admitone_a_totals, admitone_b_s').length, 1);
  assert.equal(rules.checkMetricsListed(headers, 'xadmitone_a_total admitone_b_s_sum').length, 2);
  assert.equal(rules.checkMetricsListed(headers, null).length, 1);
  assert.equal(rules.checkMetricsListed([headers[0], ''], 'admitone_a_total').length, 1);
  assert.equal(rules.checkMetricsListed([], 'admitone_a_total').length, 1);
});
