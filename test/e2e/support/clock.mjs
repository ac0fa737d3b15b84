// The time of day as a test sets it: test/shim/clock_shim.c, loaded into every node, and into the
// Redis by whose time nodes of a cluster go. One for each test file; it runs on from where it is set.
import assert from 'node:assert/strict';
import fs from 'node:fs';
import path from 'node:path';
import { preloadRedis } from './cluster.mjs';
import { BINARY, isCluster, start, tempFolder } from './server.mjs';

const SHIM = path.resolve(process.env.CLOCK_SHIM ?? path.join(path.dirname(BINARY), 'test/libclock_shim.so'));
let file;
let offsetMs = 0;

function write() {
  const bytes = Buffer.alloc(8);
  new BigInt64Array(bytes.buffer, bytes.byteOffset, 1)[0] = BigInt(offsetMs);
  // Over what is there: the programs have the file in their memory.
  const descriptor = fs.openSync(file, 'r+');
  fs.writeSync(descriptor, bytes, 0, 8, 0);
  fs.closeSync(descriptor);
}

function open() {
  assert.ok(fs.existsSync(SHIM), `there is no ${SHIM}: build the target clock_shim, and name it in CLOCK_SHIM`);
  file = path.join(tempFolder(), 'offset');
  fs.writeFileSync(file, Buffer.alloc(8));
  if (isCluster) preloadRedis(SHIM, { CLOCK_SHIM_OFFSET: file });
}

export const clock = {
  now: () => Date.now() + offsetMs,
  // `text`: as new Date takes it.
  set(text) {
    if (file === undefined) open();
    offsetMs = new Date(text).getTime() - Date.now();
    write();
  },
  // Of a program that goes by it.
  env: () => ({ LD_PRELOAD: SHIM, ASAN_OPTIONS: 'verify_asan_link_order=0', CLOCK_SHIM_OFFSET: file }),
  // As `start` in support/server.mjs. The clock is set before.
  start: (options = {}) => start({ ...options, env: { ...options.env, ...clock.env() } }),
};
