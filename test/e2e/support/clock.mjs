// Sets the time of day of every node, and of the Redis whose clock the nodes of a cluster use, by
// test/shim/clock_shim.c. There is one clock per test file; it runs on from the time that was set.
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
  // Overwrites the file in place: the programs have mapped it.
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
  // The environment of a program that uses this clock.
  env: () => ({ LD_PRELOAD: SHIM, ASAN_OPTIONS: 'verify_asan_link_order=0', CLOCK_SHIM_OFFSET: file }),
  // Like `start` in support/server.mjs. Sets the clock first.
  start: (options = {}) => start({ ...options, env: { ...options.env, ...clock.env() } }),
};
