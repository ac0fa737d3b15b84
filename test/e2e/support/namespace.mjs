// Private kernel namespaces for a test: a network whose loopback interface has other addresses, and
// mounts that no other process sees. Needs root, or a kernel that lets users create namespaces;
// otherwise the test fails, so that a missing check does not go unnoticed.
import assert from 'node:assert/strict';
import { endOf, launch, until } from './server.mjs';

// `wanted`: flags of unshare(1). `setup`: shell commands that run inside once. Returns
// { pid, enter, release }: put `enter` before a command to run it inside, with the command's own
// pid.
export async function hold(wanted, setup) {
  const own = process.getuid() === 0 ? [] : ['--user'];
  const kinds = [...own, ...wanted];
  const mapped = own.length > 0 ? ['--map-root-user'] : [];
  const script = `${setup} && echo ready && exec sleep 600`;
  const holder = launch(['unshare', ...mapped, ...kinds, 'sh', '-ec', script]);
  await until('the namespace is set up', () => holder.stdout.includes('ready') || holder.exit);
  if (holder.exit)
    assert.fail(`cannot make a namespace with 'unshare ${kinds.join(' ')}' (this test needs root and iproute2): ${holder.stderr}`);
  return {
    pid: holder.pid,
    enter: ['nsenter', ...(own.length > 0 ? ['--preserve-credentials'] : []), '--target', String(holder.pid), ...kinds],
    async release() {
      holder.child.kill('SIGKILL');
      await endOf(holder);
    },
  };
}
