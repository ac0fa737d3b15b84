// Nodes on a private Redis and PostgreSQL. For tests that break single connections, each node has its
// own proxy to each of the two (proxy.mjs). All processes end with the test program.
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import fs from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';

import { PSQL } from '../../e2e/support/cluster.mjs';
import { environment, pause, removeFolder, runBeside, start, tempFolder, until } from '../../e2e/support/server.mjs';
import { Proxy } from './proxy.mjs';

const SERVICES = fileURLToPath(new URL('../../../scripts/services', import.meta.url));
const SERVICES_MS = 600000; // the first start in a checkout may download Kafka
const KEYS = { '--secret-file': 'secret', '--pass-key-file': 'pass.key', '--admin-key-file': 'admin.key' };

const execute = promisify(execFile);
// Does not block: the load and the proxies go on.
async function output(file, args, timeout = 60000) {
  const { stdout } = await execute(file, args, { env: environment(), timeout, maxBuffer: 64 << 20 });
  return stdout.trim();
}

export class Cluster {
  // `proxies`: nodes reach their stores through `node.redis` and `node.postgres`. These take a third
  // of the CPU time of a test, so other tests do without.
  // `sentinel`: Redis is a master and a replica under three Sentinels, which nodes reach directly.
  // `kafka`: a Kafka broker runs as well.
  // `args`: further flags of every node.
  static async start({ nodes = 2, proxies = false, sentinel = false, kafka = false, args = [] } = {}) {
    const self = new Cluster();
    self.args = args;
    self.nodes = [];
    self.proxies = [];
    self.hasProxies = proxies;
    self.redisName = sentinel ? 'sentinel' : 'redis';
    self.folder = tempFolder();
    for (const name of Object.values(KEYS))
      fs.writeFileSync(path.join(self.folder, name), `${randomBytes(32).toString('hex')}\n`, { mode: 0o600 });
    self.adminKey = fs.readFileSync(path.join(self.folder, 'admin.key'), 'utf8').trim();
    const names = [self.redisName, 'postgres', ...(kafka ? ['kafka'] : [])];
    await self.startServices(...names, '--unsafe-fast', '--with-parent', String(process.pid));
    await Promise.all(Array.from({ length: nodes }, () => self.join()));
    return self;
  }

  async startServices(...args) {
    const known = this.env === undefined ? [] : ['--dir', this.env.SERVICES_DIR];
    const printed = await output(SERVICES, ['start', ...args, ...known], SERVICES_MS);
    this.env = Object.fromEntries(printed.split('\n').map((line) => line.split(/=(.*)/s)));
  }

  // Restarts one service, as an operator would; its data are kept.
  stopService(name) {
    return output(SERVICES, ['stop', this.env.SERVICES_DIR, name]);
  }

  startService(name) {
    return this.startServices(name, '--unsafe-fast');
  }

  // Starts one more node.
  async join() {
    const number = (this.joined = (this.joined ?? 0) + 1);
    const redis = this.hasProxies ? await Proxy.open(Number(this.env.REDIS_PORT)) : undefined;
    const postgres = this.hasProxies ? await Proxy.open(Number(this.env.POSTGRES_PORT)) : undefined;
    if (this.hasProxies) this.proxies.push(redis, postgres);
    const hot = redis === undefined ? this.hotUrl() : `redis://127.0.0.1:${redis.port}`;
    const ledger = postgres === undefined ? this.env.POSTGRES_URL : `postgres://admitone@127.0.0.1:${postgres.port}/admitone`;
    const keys = Object.entries(KEYS).flatMap(([flag, name]) => [flag, path.join(this.folder, name)]);
    const node = await start({
      dataDir: path.join(this.folder, `node-${number}`),
      args: ['--hot', hot, '--ledger', ledger, ...keys, ...this.args],
    });
    Object.assign(node, { adminKey: this.adminKey, redis, postgres, number });
    this.nodes.push(node);
    return node;
  }

  async kill9(node) {
    this.nodes.splice(this.nodes.indexOf(node), 1);
    await node.kill9();
  }

  redisCli(...words) {
    return output('redis-cli', ['-h', '127.0.0.1', '-p', this.env.REDIS_PORT, ...words]);
  }

  // Changes what the ledger holds.
  sql(statements) {
    return output(PSQL, [this.env.POSTGRES_URL, '-qAtX', '-v', 'ON_ERROR_STOP=1', '-c', statements]);
  }

  // Rows as objects.
  async ask(sql) {
    const question = `SELECT coalesce(json_agg(t), '[]') FROM (${sql}) t`;
    return JSON.parse(await output(PSQL, [this.env.POSTGRES_URL, '-qAtX', '-v', 'ON_ERROR_STOP=1', '-c', question]));
  }

  // The sum over the nodes that live.
  async metric(name) {
    const texts = await Promise.all(this.nodes.map(async (node) => (await node.call('GET', '/metrics')).text));
    const lines = texts.flatMap((text) => text.split('\n')).filter((line) => line.startsWith(`${name} `));
    assert.ok(lines.length > 0, `there is no metric ${name}`);
    return lines.reduce((sum, line) => sum + Number(line.slice(name.length + 1)), 0);
  }

  async epoch() {
    return (await this.ask("SELECT number, identity FROM epochs WHERE name = 'hot'"))[0];
  }

  // Every node works with the hot store and the ledger again: it says so itself.
  isWell(timeoutMs = 60000) {
    return until(
      'every node works again',
      async () => {
        const answers = await Promise.all(this.nodes.map((node) => node.call('GET', '/ready')));
        return answers.every(({ status }) => status === 200);
      },
      timeoutMs,
    );
  }

  hotUrl() {
    return this.env.SENTINEL_URL ?? this.env.REDIS_URL;
  }

  storeFlags() {
    return ['--data', this.folder, '--hot', this.hotUrl(), '--ledger', this.env.POSTGRES_URL];
  }

  // Runs `admitone reconcile` without load, so it need not wait for long.
  async reconcile() {
    const { status, stdout, stderr } = await runBeside(['reconcile', ...this.storeFlags(), '--ledger-deadline-ms', '500']);
    assert.equal(status, 0, stdout + stderr);
    return stdout;
  }

  // The nodes end with 0 and without a report, the ledger is consistent, and the boards agree with it.
  async stop() {
    await until('the boards have counted all', async () => {
      const { status, stdout } = await runBeside(['audit', ...this.storeFlags()]);
      if (status !== 2 && !stdout.includes('not counted yet')) return true;
      await pause(200);
      return false;
    });
    await Promise.all(this.nodes.map((node) => node.stop()));
    const audit = await runBeside(['audit', ...this.storeFlags()]);
    assert.equal(audit.status, 0, audit.stdout + audit.stderr);
    assert.match(audit.stdout, /\d+ checks, 0 violations/);
    assert.match(audit.stdout, /ok +boards equal a recount/);
  }

  // Also if the test failed.
  async abandon() {
    for (const proxy of this.proxies) proxy.close();
    await output(SERVICES, ['stop', this.env.SERVICES_DIR]);
    removeFolder(this.folder);
  }
}
