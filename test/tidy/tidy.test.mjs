// Checks the tree by the rules of rules.mjs. Each rule is one test, which first applies the rule to a
// sample that breaks it, so that a rule that finds nothing any more is noticed.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import fs from 'node:fs';
import path from 'node:path';
import test from 'node:test';
import { fileURLToPath } from 'node:url';

import * as rules from './rules.mjs';

const ROOT = fileURLToPath(new URL('../../', import.meta.url));

// The files that git tracks or would track; without git every file below the root.
function allFiles() {
  const options = { cwd: ROOT, encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] };
  try {
    const listed = ['ls-files', '-z', '--cached', '--others', '--exclude-standard'];
    return execFileSync('git', listed, options)
      .split('\0')
      .filter((name) => name !== '' && isFile(name));
  } catch {
    return walk('');
  }
}

function isFile(name) {
  const stat = fs.lstatSync(path.join(ROOT, name), { throwIfNoEntry: false });
  return stat !== undefined && stat.isFile();
}

function walk(folder) {
  const skipped = new Set(['.git', 'build', 'data', 'node_modules']);
  return fs.readdirSync(path.join(ROOT, folder), { withFileTypes: true }).flatMap((entry) => {
    const name = folder === '' ? entry.name : `${folder}/${entry.name}`;
    if (entry.isDirectory()) return skipped.has(entry.name) ? [] : walk(name);
    return entry.isFile() ? [name] : [];
  });
}

const FILES = allFiles();
const SOURCES = FILES.filter((name) => /^src\/.*\.[ch]$/.test(name));
const C_FILES = FILES.filter((name) => /\.[ch]$/.test(name));

function read(name) {
  return fs.readFileSync(path.join(ROOT, name), 'utf8');
}

function readOrNull(name) {
  return isFile(name) ? read(name) : null;
}

function assertClean(complaints) {
  assert.ok(complaints.length === 0, `\n${complaints.join('\n')}\n`);
}

function assertAll(names, check) {
  assert.ok(names.length > 0, 'no files to look at');
  assertClean(names.flatMap((name) => check(name, read(name))));
}

// The rule sees each of these bad samples, given as [path, text].
function assertSeen(check, samples) {
  for (const [name, text] of samples) {
    assert.notEqual(check(name, text).length, 0, `not seen in ${name}: ${JSON.stringify(text)}`);
  }
}

test('includes point one way', () => {
  assertSeen(rules.checkIncludes, [
    ['src/base/str.c', '#include "core/event.h"\n'],
    ['src/net/conn.c', '#include "api/api.h"\n'],
    ['src/service/events.c', '#include <sqlite3.h>\n'],
    ['src/core/event.c', '#include <strange.h>\n'],
  ]);
  assertAll(SOURCES, rules.checkIncludes);
});

test('api calls services, not ports', () => {
  const functions = rules.portFunctions(
    SOURCES.filter((name) => /^src\/port\/.*\.h$/.test(name)).map((name) => read(name)),
  );
  const check = (name, text) => rules.checkPortCalls(name, text, functions);
  const calls = ['queues_look(q, &look);', 'if (ledger_ask (l, r) != ERR_OK) return;', 'boards_top(b, t);'];
  assertSeen(check, calls.map((call) => ['src/api/x.c', `static void f(void) {\n    ${call}\n}\n`]));
  assertAll(
    SOURCES.filter((name) => name.startsWith('src/api/')),
    check,
  );
});

test('no banned function is called', () => {
  assertSeen(
    rules.checkBanned,
    rules.BANNED.map((name) => ['src/x.c', `int main(void) {\n    ${name} (a, b);\n}\n`]),
  );
  assertAll(
    C_FILES.filter((name) => /^(src|test)\//.test(name)),
    rules.checkBanned,
  );
});

test('headers are guarded by the name of their path', () => {
  assertSeen(rules.checkGuard, [
    ['src/base/x.h', '#ifndef ADMITONE_X_H\n#define ADMITONE_X_H\n#endif\n'],
    ['src/base/x.h', '#pragma once\n'],
  ]);
  assertAll(
    C_FILES.filter((name) => name.endsWith('.h')),
    rules.checkGuard,
  );
});

test('C files have no tabs, no trailing blanks and no long lines', () => {
  assertSeen(rules.checkLayout, [
    ['src/x.c', '\tint a;\n'],
    ['src/x.c', 'int a; \n'],
    ['src/x.c', `/* ${'x'.repeat(95)} */\n`],
    ['src/x.c', 'int a;'],
  ]);
  assertAll(C_FILES, rules.checkLayout);
});

test('every header of src opens with its contract', () => {
  assertSeen(rules.checkOpening, [
    ['src/base/x.h', '#ifndef ADMITONE_BASE_X_H\n'],
    ['src/base/x.h', '/*\n * y: something else.\n */\n'],
  ]);
  assertAll(
    SOURCES.filter((name) => name.endsWith('.h')),
    rules.checkOpening,
  );
});

test('what a header declares is defined in the file of the same name', () => {
  const none = (name, text) => rules.checkDeclared(name, text, () => 'static void f(void) {\n}\n');
  assertSeen(none, [['src/base/x.h', 'void f(void);\n']]);
  assertAll(
    SOURCES.filter((name) => name.endsWith('.h')),
    (name, text) => rules.checkDeclared(name, text, readOrNull),
  );
});

test('no source is longer than it can be understood', () => {
  assertSeen(rules.checkLength, [['src/x.c', 'int a;\n'.repeat(rules.FILE_LINES_MAX + 1)]]);
  assertAll(SOURCES, rules.checkLength);
});

test('nothing says that it is unfinished', () => {
  assertSeen(
    rules.checkUnfinished,
    rules.UNFINISHED.map((word) => ['README.md', `Fine.\n<!-- ${word}: later -->\n`]),
  );
  assertAll(FILES, rules.checkUnfinished);
});

test('unit tests stand where their source stands', () => {
  assert.equal(rules.checkMirror(['src/base/str.c', 'test/unit/base/strs_test.c']).length, 1);
  assert.ok(FILES.some((name) => name.startsWith('test/unit/')));
  assertClean(rules.checkMirror(FILES));
});

test('docs/api.md lists every error code', () => {
  const header = read('src/base/err.h');
  assert.notEqual(rules.checkErrorsListed(header, 'nothing').length, 0);
  assertClean(rules.checkErrorsListed(header, readOrNull('docs/api.md')));
});

test('docs/operations.md lists every metric', () => {
  const headers = ['src/base/metrics.h', 'src/service/reservation_metrics.c'].map(read);
  assert.notEqual(rules.checkMetricsListed(headers, 'nothing').length, 0);
  assertClean(rules.checkMetricsListed(headers, readOrNull('docs/operations.md')));
});

test('docs/pitfalls.md and docs/security.md name tests that exist', () => {
  assert.equal(rules.checkNamedTests('x.md', '| `e2e/gone.test.mjs`: it works | `e2e/queue.test.mjs`: nothing of the kind |', readOrNull).length, 2);
  for (const name of ['docs/pitfalls.md', 'docs/security.md']) {
    const text = read(name);
    assert.ok(text.match(/`(?:chaos|contract|e2e|unit)\//g).length > 36);
    assertClean(rules.checkNamedTests(name, text, readOrNull));
  }
});

test('docs name functions that exist', () => {
  assert.equal(rules.checkNamedFunctions('x.md', '`service/hold.c: hold_gone` → `gone.c: x`', readOrNull).length, 2);
  const docs = allFiles().filter((name) => name.endsWith('.md'));
  assert.ok(docs.length > 30);
  assertClean(docs.flatMap((name) => rules.checkNamedFunctions(name, read(name), readOrNull)));
});
