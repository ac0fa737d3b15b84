// The rules of the source tree as functions. Each takes file names and texts and returns a list of
// complaints, one line each; an empty list is a pass. None reads the disk.

// The folders that each folder of src/ may include besides itself. `libraries` are headers, or folders
// when they end with a slash; every folder may include the C library.
export const LAYERS = {
  base: { layers: [], libraries: [] },
  run: { layers: ['base'], libraries: ['uv.h'] },
  core: { layers: ['base'], libraries: [] },
  port: { layers: ['core', 'base'], libraries: [] },
  hot: { layers: ['port', 'core', 'run', 'base'], libraries: ['hiredis/', 'uv.h'] },
  ledger: { layers: ['port', 'core', 'run', 'base'], libraries: ['sqlite3.h', 'libpq-fe.h'] },
  feed: { layers: ['port', 'core', 'run', 'base'], libraries: ['librdkafka/'] },
  service: { layers: ['port', 'core', 'run', 'base'], libraries: [] },
  net: { layers: ['run', 'base'], libraries: ['uv.h'] },
  crowd: { layers: ['net', 'run', 'base'], libraries: ['uv.h', 'jansson.h'] },
  api: { layers: ['net', 'service', 'crowd', 'core', 'run', 'base'], libraries: ['jansson.h'] },
};

// Single files that may include a library which their folder may not.
export const LIBRARY_EXCEPTIONS = {
  'src/api/gzip.c': ['zlib.h'],
  'src/base/config.c': ['ini.h'],
  'src/core/hmac.c': ['openssl/'],
  'src/core/sha256.c': ['openssl/'],
  'src/feed/kafka_message.c': ['jansson.h'],
};

// The folders that wire everything together: all layers, all libraries known above.
const WIRING = ['cli', 'main'];

const LIBRARIES = [
  ...Object.values(LAYERS).flatMap((layer) => layer.libraries),
  ...Object.values(LIBRARY_EXCEPTIONS).flat(),
];

// The C library and the kernel's interface, as far as a server needs them.
const LIBC = new Set(
  `assert ctype errno fenv float inttypes iso646 limits locale math setjmp signal stdalign stdarg
   stdatomic stdbool stddef stdint stdio stdlib stdnoreturn string strings tgmath threads time
   uchar wchar wctype
   arpa/inet dirent dlfcn endian execinfo fcntl fnmatch getopt glob grp libgen link malloc net/if
   netdb netinet/in netinet/ip netinet/tcp poll pthread pwd regex sched search semaphore spawn
   sysexits syslog termios ucontext unistd
   sys/epoll sys/eventfd sys/file sys/inotify sys/ioctl sys/mman sys/prctl sys/random sys/resource
   sys/select sys/sendfile sys/signalfd sys/socket sys/stat sys/statvfs sys/syscall sys/sysinfo
   sys/time sys/timerfd sys/types sys/uio sys/un sys/utsname sys/vfs sys/wait
   linux/falloc linux/fs linux/futex linux/limits`
    .split(/\s+/)
    .map((name) => `${name}.h`),
);

export const BANNED = [
  ...['strcpy', 'strcat', 'sprintf', 'vsprintf', 'strtok', 'atoi', 'atol', 'gets'],
  ...['system', 'alloca', 'rand'],
];

export const FILE_LINES_MAX = 800;
export const LINE_COLUMNS_MAX = 100;

// Replaces comments in C code by blanks, and with `literals` also the contents of string and character
// literals. Line numbers do not change.
export function stripC(text, { literals }) {
  const token = /\/\*[^]*?(?:\*\/|$)|\/\/(?:\\\n|[^\n])*|"(?:\\[^]|[^"\\\n])*"|'(?:\\[^]|[^'\\\n])*'/g;
  return text.replace(token, (found) => {
    const quote = found[0];
    if (quote === '/') return found.replace(/[^\n]/g, ' ');
    return literals ? quote + found.slice(1, -1).replace(/[^\n]/g, ' ') + quote : found;
  });
}

function lines(text) {
  const all = text.split('\n');
  if (all[all.length - 1] === '') all.pop();
  return all;
}

function matchesLibrary(header, libraries) {
  return libraries.some((l) => (l.endsWith('/') ? header.startsWith(l) : header === l));
}

// 'src/base/str.c' is of the layer 'base', 'src/main.c' of 'main'.
function layerOf(path) {
  return path.replace(/^src\//, '').split('/')[0].replace(/\.[ch]$/, '');
}

function whyNoInclude(path, quoted, header) {
  const layer = layerOf(path);
  const wiring = WIRING.includes(layer);
  const rule = LAYERS[layer];
  if (!wiring && !rule) return `src/${layer} is no layer: LAYERS in test/tidy/rules.mjs does not list it`;
  if (quoted) {
    const other = header.includes('/') ? layerOf(header) : null;
    if (!LAYERS[other] && !WIRING.includes(other))
      return 'write own headers as "layer/name.h", libraries in <>';
    if (wiring || other === layer || rule.layers.includes(other)) return null;
    return `${layer} may include ${[layer, ...rule.layers].join(', ')} only`;
  }
  if (LIBC.has(header)) return null;
  if (!matchesLibrary(header, LIBRARIES)) return 'unknown library header (test/tidy/rules.mjs)';
  const allowed = [...(rule?.libraries ?? []), ...(LIBRARY_EXCEPTIONS[path] ?? [])];
  if (wiring || matchesLibrary(header, allowed)) return null;
  return `${path} may use ${['libc', ...allowed].join(', ')} only`;
}

export function checkIncludes(path, text) {
  const complaints = [];
  lines(stripC(text, { literals: false })).forEach((line, i) => {
    const directive = /^\s*#\s*include(?:_next)?\b\s*(.*?)\s*$/.exec(line);
    if (!directive) return;
    const name = /^(?:<([^>]+)>|"([^"]+)")$/.exec(directive[1]);
    const why = name
      ? whyNoInclude(path, name[2] !== undefined, name[1] ?? name[2])
      : 'an include that names no file can not be checked';
    if (why) complaints.push(`${path}:${i + 1}: includes ${directive[1]}: ${why}`);
  });
  return complaints;
}

// Headers whose functions stand in several files. A port's are in its adapters.
export const DECLARED_ELSEWHERE = [
  /^src\/port\//,
  /(^|\/|_)internal\.h$/, // what the files of one folder or adapter share
  /^src\/api\/api\.h$/, // the handlers, by file
  /^src\/cli\/cli\.h$/, // the commands, by file
];

// The names of functions that C text declares, or defines (`ending` '{'), other than static ones.
function functionsOf(text, ending) {
  let code = stripC(text, { literals: true }).replace(/^#.*(?:\\\n.*)*$/gm, '');
  if (ending === ';') for (let before; before !== code; ) [before, code] = [code, code.replace(/\{[^{}]*\}/g, '')];
  const attribute = ending === ';' ? '(?:__attribute__[^;]*)?' : '';
  const shape = `^(?!static\\b|typedef\\b|extern\\b)[a-z][\\w \\t*]*?\\b(\\w+)\\s*\\((?:[^(){};]|\\([^()]*\\))*\\)\\s*${attribute}\\${ending}`;
  return [...code.matchAll(new RegExp(shape, 'gm'))].map((m) => m[1]);
}

// Checks that the functions that x.h declares are defined in x.c. `read` returns a file's text, or
// null.
export function checkDeclared(path, text, read) {
  if (DECLARED_ELSEWHERE.some((pattern) => pattern.test(path))) return [];
  const source = path.replace(/\.h$/, '.c');
  const defined = new Set(functionsOf(read(source) ?? '', '{'));
  return functionsOf(text, ';')
    .filter((name) => !defined.has(name))
    .map((name) => `${path}: declares ${name}, which ${source} does not define`);
}

// The services' headers show structs of the ports, so api/ could call these without an include.
// `portHeaders` are the texts of src/port/*.h.
export function portFunctions(portHeaders) {
  const inline = /^static inline [^()]*?(\w+)\(/gm;
  return portHeaders.flatMap((text) => [...stripC(text, { literals: true }).matchAll(inline)].map((m) => m[1]));
}

export function checkPortCalls(path, text, functions) {
  const call = new RegExp(`(?<![\\w.]|->)(${functions.join('|')})\\s*\\(`, 'g');
  return lines(stripC(text, { literals: true })).flatMap((line, i) =>
    [...line.matchAll(call)].map((m) => `${path}:${i + 1}: calls ${m[1]} of a port: api/ calls services only`),
  );
}

export function checkBanned(path, text) {
  const call = new RegExp(`(?<![\\w.]|->)(${BANNED.join('|')})\\s*\\(`, 'g');
  return lines(stripC(text, { literals: true })).flatMap((line, i) =>
    [...line.matchAll(call)].map((m) => `${path}:${i + 1}: calls ${m[1]}, which is banned`),
  );
}

// 'src/base/json_out.h' is guarded by ADMITONE_BASE_JSON_OUT_H. Headers of test/support are
// included by their bare names, and 'test/support/x.h' is guarded by ADMITONE_TEST_X_H.
export function guardOf(path) {
  const included = path.replace(/^src\//, '').replace(/^test\/support\//, 'test/');
  const name = included.replace(/\.h$/, '');
  return `ADMITONE_${name.replace(/[^A-Za-z0-9]/g, '_').toUpperCase()}_H`;
}

export function checkGuard(path, text) {
  const guard = guardOf(path);
  const code = lines(stripC(text, { literals: false })).filter((line) => line.trim() !== '');
  const stands =
    code[0] === `#ifndef ${guard}` &&
    code[1] === `#define ${guard}` &&
    /^#endif\s*$/.test(code[code.length - 1]);
  return stands ? [] : [`${path}: everything but its comment stands between the guard ${guard}`];
}

export function checkLayout(path, text) {
  const complaints = [];
  lines(text).forEach((line, i) => {
    const complain = (what) => complaints.push(`${path}:${i + 1}: ${what}`);
    if (line.includes('\t')) complain('a tab');
    if (/\s$/.test(line)) complain('white space at the end');
    const columns = [...line].length;
    if (columns > LINE_COLUMNS_MAX) complain(`${columns} columns, ${LINE_COLUMNS_MAX} is the most`);
  });
  if (text !== '' && !text.endsWith('\n')) complaints.push(`${path}: no newline at the end`);
  return complaints;
}

export function checkOpening(path, text) {
  const module = path.replace(/^.*\//, '').replace(/\.h$/, '');
  return text.startsWith(`/*\n * ${module}: `)
    ? []
    : [`${path}: opens with its contract: "/*" and then " * ${module}: …"`];
}

export function checkLength(path, text) {
  const count = lines(text).length;
  return count > FILE_LINES_MAX ? [`${path}: ${count} lines, ${FILE_LINES_MAX} is the most`] : [];
}

// The words are put together here, so that this file may be checked as well.
export const UNFINISHED = ['TO' + 'DO', 'FIX' + 'ME', 'X'.repeat(3)];

export function checkUnfinished(path, text) {
  if (text.includes('\0')) return []; // a picture, say
  const word = new RegExp(`\\b(${UNFINISHED.join('|')})\\b`);
  return lines(text).flatMap((line, i) => {
    const found = word.exec(line);
    return found ? [`${path}:${i + 1}: ${found[1]}: finish it, or file it`] : [];
  });
}

// `paths` are all files; test/unit/base/str_test.c wants src/base/str.c or src/base/str.h.
export function checkMirror(paths) {
  const all = new Set(paths);
  return paths
    .filter((path) => /^test\/unit\/.*\.[ch]$/.test(path))
    .flatMap((path) => {
      if (!path.endsWith('_test.c')) return [`${path}: unit tests are named *_test.c`];
      const source = path.replace(/^test\/unit\//, 'src/').replace(/_test\.c$/, '');
      // x_test.c tests x, and so does x_aspect_test.c when x has more than one test file.
      for (let name = source; name.includes('/'); name = name.replace(/(_[^_/]*|\/[^_/]*)$/, ''))
        if (all.has(`${name}.c`) || all.has(`${name}.h`)) return [];
      return [`${path}: there is no ${source}.c that it could test`];
    });
}

// The rows X(SYMBOL, "name", …) of the table macro `map`, which may span lines.
export function tableRows(header, map) {
  const joined = header.replace(/\\\n/g, ' ');
  const table = new RegExp(`^#define ${map}\\(X\\)(.*)$`, 'm').exec(joined);
  if (!table) return [];
  return [...table[1].matchAll(/\bX\(\s*(\w+)\s*,\s*"([^"]*)"/g)].map((m) => m[2]);
}

// Success has a row in the table too, but is no error that a reader would look up.
export function checkErrorsListed(errHeader, apiDoc) {
  const codes = tableRows(errHeader, 'ERR_MAP').filter((code) => code !== 'ok');
  if (codes.length === 0) return ['src/base/err.h: ERR_MAP has no rows that this test can read'];
  if (apiDoc === null) return ['docs/api.md: there is no such file'];
  return codes
    .filter((code) => !apiDoc.includes(`\`${code}\``))
    .map((code) => `docs/api.md: does not list the error \`${code}\` of src/base/err.h`);
}

// `headers` are the texts of those that have the tables; a literal that begins so is a name.
export function checkMetricsListed(headers, operationsDoc) {
  const names = headers.map((header) => {
    const code = stripC(header, { literals: false });
    return [...code.matchAll(/"(admitone_\w+)"/g)].map((m) => m[1]);
  });
  if (names.length === 0 || names.some((found) => found.length === 0))
    return ['src/base/metrics*.h: a header has no names that this test can read'];
  if (operationsDoc === null) return ['docs/operations.md: there is no such file'];
  return [...new Set(names.flat())]
    .filter((name) => !new RegExp(`(?<!\\w)${name}(?!\\w)`).test(operationsDoc))
    .map((name) => `docs/operations.md: does not list the metric ${name} of src/base`);
}

// Docs name tests as `file`, or `file`: the beginning of a test's name. `read` gives a file's text, or
// null.
export function checkNamedTests(path, text, read) {
  const complaints = [];
  for (const [, file, name] of text.matchAll(/`((?:chaos|contract|e2e|unit)\/[^`]+)`(?:: ([^|`]+?))?(?= *\||, `)/g)) {
    const source = read(`test/${file}`);
    if (source === null) complaints.push(`${path}: there is no test/${file}`);
    else if (name !== undefined && !source.replaceAll("\\'", "'").includes(name)) complaints.push(`${path}: test/${file} has no test "${name}"`);
  }
  return complaints;
}

// Docs name functions as `folder/file.c: name`, below src/.
export function checkNamedFunctions(path, text, read) {
  return [...text.matchAll(/`([\w/]+\.c): (\w+)`/g)]
    .filter(([, file, name]) => !new RegExp(`\\b${name}\\(`).test(read(`src/${file}`) ?? ''))
    .map(([, file, name]) => `${path}: src/${file} has no function ${name}`);
}
