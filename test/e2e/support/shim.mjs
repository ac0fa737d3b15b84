// Starts the real program with test/shim/sync_shim.c, which reports when SQLite's syncs end, delays
// them, or fails writes. On a cluster PostgreSQL's commits are delayed instead.
import assert from 'node:assert/strict';
import fs from 'node:fs';
import path from 'node:path';
import { holdCommits, releaseCommits } from './cluster.mjs';
import { BINARY, isCluster, removeFolder, start, tempFolder } from './server.mjs';

const SHIM = path.resolve(process.env.SYNC_SHIM ?? path.join(path.dirname(BINARY), 'test/libsync_shim.so'));

// A server under the shim. `hold`, `fail` and their ends switch it; `syncs` reads its log.
export async function shimmed(args = [], { dataDir } = {}) {
  if (isCluster) {
    const folder = tempFolder();
    return withCommitsToHold(await start({ args, dataDir: dataDir ?? path.join(folder, 'data') }), folder);
  }
  assert.ok(fs.existsSync(SHIM), `there is no ${SHIM}: build the target sync_shim, and name it in SYNC_SHIM`);
  const folder = tempFolder();
  const file = (name) => path.join(folder, name);
  const server = await start({
    args,
    dataDir: dataDir ?? file('data'),
    env: {
      LD_PRELOAD: SHIM,
      ASAN_OPTIONS: 'verify_asan_link_order=0',
      SYNC_SHIM_LOG: file('log'),
      SYNC_SHIM_HOLD: file('hold'),
      SYNC_SHIM_FAIL: file('fail'),
    },
  });
  const stop = server.stop;
  return Object.assign(server, {
    hold: () => fs.writeFileSync(file('hold'), ''),
    release: () => fs.rmSync(file('hold'), { force: true }),
    fail: () => fs.writeFileSync(file('fail'), ''),
    recover: () => fs.rmSync(file('fail'), { force: true }),
    syncs: () =>
      fs.readFileSync(file('log'), 'utf8').trimEnd().split('\n').map((line) => {
        const [, at, kind] = /^(\d+) (wal|db)$/.exec(line);
        return { at: BigInt(at), kind };
      }),
    stop: async (...how) => {
      server.release();
      server.recover();
      const ended = await stop(...how);
      removeFolder(folder);
      return ended;
    },
    forget: () => removeFolder(folder),
  });
}

function withCommitsToHold(server, folder) {
  const stop = server.stop;
  const forget = () => removeFolder(folder);
  const switches = { hold: holdCommits, release: releaseCommits };
  // PostgreSQL is the same one for all of them.
  for (const node of server.nodes) Object.assign(node, switches);
  return Object.assign(server, {
    ...switches,
    forget,
    stop: async (...how) => {
      releaseCommits();
      const ended = await stop(...how);
      forget();
      return ended;
    },
  });
}

export async function withShim(use, args) {
  const server = await shimmed(args);
  try {
    await use(server);
  } finally {
    await server.stop();
  }
}
