// deploy/nginx.conf, with other names and ports, in front of a real server.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import fs from 'node:fs';
import http from 'node:http';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

import { NGINX, connects, freePort, startNginx } from './support/nginx.mjs';
import { BINARY, call, concert, endOf, environment, launch, removeFolder, start, tempFolder, test, until } from './support/server.mjs';

const CONFIG = fileURLToPath(new URL('../../deploy/nginx.conf', import.meta.url));

function replaced(text, pairs) {
  for (const [from, to] of pairs) {
    assert.ok(text.includes(from), `no "${from}" in deploy/nginx.conf`);
    text = text.replaceAll(from, to);
  }
  return text;
}

async function front(upstreams) {
  const folder = tempFolder();
  const at = (name) => path.join(folder, name);
  const port = await freePort();
  const text = replaced(fs.readFileSync(CONFIG, 'utf8'), [
    ['node1:8080', `127.0.0.1:${upstreams[0]}`],
    ['node2:8080', `127.0.0.1:${upstreams[1]}`],
    ['listen 80;', `listen 127.0.0.1:${port};`],
    ['/tmp/nginx.pid', at('nginx.pid')],
    ['worker_processes auto', `daemon off; master_process off; ${process.getuid() === 0 ? 'user root; ' : ''}worker_processes 1`],
    ['worker_rlimit_nofile 1048576', 'worker_rlimit_nofile 1024'],
    ['worker_connections 65536', 'worker_connections 256'],
    ['http {', `http { client_body_temp_path ${at('body')}; proxy_temp_path ${at('proxy')};
       fastcgi_temp_path ${at('fastcgi')}; uwsgi_temp_path ${at('uwsgi')}; scgi_temp_path ${at('scgi')};`],
  ]);
  fs.writeFileSync(at('nginx.conf'), text);
  const flags = ['-e', at('error.log'), '-p', folder, '-c', at('nginx.conf')];
  const checked = spawnSync(NGINX, ['-t', ...flags], { encoding: 'utf8', timeout: 20000 });
  assert.equal(checked.status, 0, checked.stderr);
  assert.doesNotMatch(checked.stderr, /\[(warn|alert|emerg)\]/);
  const nginx = launch([NGINX, ...flags]);
  await until('nginx listens', () => {
    assert.equal(nginx.exit, null, nginx.stderr);
    return connects(port);
  });
  const stop = async () => {
    nginx.child.kill('SIGTERM');
    await endOf(nginx);
    removeFolder(folder);
  };
  return { host: '127.0.0.1', port, stop };
}

// A stream, without nginx's chunks around it: { text, ended, close }.
async function subscribe({ host, port }, target) {
  const stream = { text: '', ended: false };
  const response = await new Promise((resolve, reject) => {
    const request = http.get({ host, port, path: target, agent: false }, resolve).on('error', reject);
    stream.close = () => request.destroy();
  });
  assert.equal(response.statusCode, 200);
  response.setEncoding('utf8').on('data', (text) => (stream.text += text));
  response.on('end', () => (stream.ended = true)).on('error', () => {});
  return stream;
}

test('nginx passes requests and live streams on, and keeps /metrics inside', async () => {
  const args = ['--users-auth', 'trusted', '--net-trusted-proxies', '127.0.0.1/32', '--push-interval-ms', '100'];
  const server = await start({ args });
  const edge = await front([server.port, server.port]);
  const event = concert({ queue: { maxActive: 1, entryBatchSize: 1 } });
  assert.equal((await server.admin('PUT', '/admin/events/CONCERT/1', event)).status, 201);
  const enter = (userId) => call(edge, 'POST', '/queue/CONCERT/1/enter', { body: { userId } });
  const ann = await enter('ann');
  assert.equal(ann.status, 200, ann.text);
  const ben = await enter('ben');
  assert.equal(ben.status, 202, ben.text);
  assert.equal((await call(edge, 'GET', '/metrics')).status, 404);
  assert.equal((await server.call('GET', '/metrics')).status, 200);

  // Events arrive while the stream is open: nginx does not buffer them until its end.
  const stream = await subscribe(edge, `/queue/CONCERT/1/subscribe/${ben.json.entryToken}`);
  await until('ben sees that he waits', () => stream.text.includes('"status":"WAITING"'));
  assert.equal(stream.ended, false);
  const leave = { headers: { authorization: `Bearer ${ann.json.entryToken}` } };
  assert.equal((await call(edge, 'DELETE', '/queue/CONCERT/1/leave', leave)).status, 204);
  await until('ben sees that he is in', () => stream.text.includes('"status":"ACTIVE"'));
  stream.close();
  await edge.stop();
  await server.stop();
});

// The last two are those of an event whose name is that of a stream's path.
const INSIDE = [
  ['GET', '/metrics'], ['GET', '/metrics?x'], ['GET', '/%6detrics'], ['GET', '/admin/audit'], ['GET', '/admin/facts'], ['GET', '//admin/audit'],
  ['GET', '/%61dmin/audit'], ['GET', '/admin%2Faudit'], ['GET', '/x/../admin/audit'], ['GET', '/queue/../admin/audit'], ['PUT', '/admin/events/CONCERT/2'], ['DELETE', '/admin/events/CONCERT/1'],
  ['POST', '/admin/queue/CONCERT/1/pause'], ['GET', '/admin/events/subscribe/1'], ['GET', '/admin/queue/subscribe/1/status'],
];

test('neither deploy/nginx.conf nor the gate of docs/api.md passes on /admin or /metrics, also with the right key', async () => {
  const server = await start({ args: ['--users-auth', 'trusted', '--net-trusted-proxies', '127.0.0.1/32'] });
  const headers = { authorization: `Bearer ${server.adminKey}` };
  for (const event of ['CONCERT/1', 'subscribe/1']) assert.equal((await server.admin('PUT', `/admin/events/${event}`, concert())).status, 201);
  const before = await server.newestAudit();
  const prose = fs.readFileSync(new URL('../../docs/api.md', import.meta.url), 'utf8');
  const [, gate] = /```\n(location \/tickets\/ [^]*?)```/.exec(prose);
  const fronts = [
    await front([server.port, server.port]),
    await startNginx(replaced(gate, [['127.0.0.1:8080', `127.0.0.1:${server.port}`], ['http://shop', `http://127.0.0.1:${await freePort()}`]])),
  ];
  for (const edge of fronts) {
    assert.equal((await call(edge, 'GET', '/queue/CONCERT/1/status')).status, 401, 'it works');
    for (const [method, target] of INSIDE) {
      const answer = await call(edge, method, target, { headers, body: method === 'PUT' ? concert() : undefined });
      assert.ok([404, 405].includes(answer.status), `${method} ${target}: ${answer.status} ${answer.text}`);
      assert.match(answer.text, /nginx/, `${method} ${target} was not refused by nginx`);
    }
  }
  assert.equal(await server.newestAudit(), before);
  for (const edge of fronts) await edge.stop();
  await server.stop();
});

test('while one node is down, the other one answers everything', async () => {
  const server = await start({ args: ['--users-auth', 'trusted', '--net-trusted-proxies', '127.0.0.1/32'] });
  const edge = await front([await freePort(), server.port]);
  for (let i = 0; i < 20; i++) assert.equal((await call(edge, 'GET', '/events')).status, 200);
  for (let i = 0; i < 20; i++) {
    const answer = await call(edge, 'POST', '/queue/CONCERT/404/enter', { body: { userId: 'ann' } });
    assert.equal(answer.status, 404, answer.text);
  }
  await edge.stop();
  await server.stop();
});

test('an installation has the program, its documents, a unit file and an example configuration that work', (t) => {
  const folder = tempFolder();
  t.after(() => removeFolder(folder));
  const installed = spawnSync('cmake', ['--install', path.dirname(fs.realpathSync(BINARY))], { encoding: 'utf8', env: { ...process.env, DESTDIR: folder }, timeout: 30000 });
  assert.equal(installed.status, 0, installed.stderr);
  const prefix = path.join(folder, 'usr/local');
  const text = (name) => fs.readFileSync(path.join(prefix, name), 'utf8');
  const program = path.join(prefix, 'bin/admitone');
  for (const name of ['README.md', 'LICENSE', 'docs/operations.md', 'docs/api.md', 'docs/openapi.json', 'docs/decisions/README.md'])
    assert.ok(text(`share/doc/admitone/${name}`).length > 0, name);

  const unit = text('lib/systemd/system/admitone.service');
  const [, started] = /^ExecStart=(\S+) serve --config \/usr\/local\/etc\/admitone\/admitone\.ini$/m.exec(unit);
  assert.ok(fs.existsSync(path.join(folder, started)), started);
  assert.match(unit, /^SystemCallFilter=@system-service$/m);
  assert.doesNotMatch(unit, /@CMAKE/);

  // The unchanged file, with every line enabled.
  const example = text('etc/admitone/admitone.ini.example');
  const all = path.join(folder, 'all.ini');
  fs.writeFileSync(all, example.replaceAll(/^; (\w+ = \S+)$/gm, '$1'));
  for (const file of [path.join(prefix, 'etc/admitone/admitone.ini.example'), all]) {
    const shown = spawnSync(program, ['serve', '--print-config', '--config', file], { encoding: 'utf8', env: environment(), timeout: 20000 });
    assert.equal(shown.status, 0, shown.stderr);
    assert.match(shown.stdout, /^data = \/var\/lib\/admitone +; file /m);
    if (file === all) assert.equal(shown.stdout.match(/; file /g).length, example.match(/^;? ?\w+ = \S+$/gm).length);
  }
});
