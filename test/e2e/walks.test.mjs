// A shell runs the commands that README.md, docs/api.md and the demo's banner show: each works as
// printed, the answers are those that are shown, and the demo event is unchanged at the end.
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import fs from 'node:fs';
import path from 'node:path';
import { promisify } from 'node:util';

import { BINARY, environment, removeFolder, start, tempFolder, test, until } from './support/server.mjs';

const execute = promisify(execFile);
const read = (name) => fs.readFileSync(new URL(`../../${name}`, import.meta.url), 'utf8');

const isCommand = (text) => /^(curl |[A-Z]+=|\w+\(\) |build\/admitone )/.test(text);
// The beginning of a stream depends on whether its client or its end comes first.
const isShown = (text) => !text.startsWith('retry:');

// The code of a part of a document: [{ commands, shown }], where `shown` are the answers printed below
// the commands, in the same block or in the next one.
function steps(document, heading) {
  const [, part] = document.split(`\n${heading}\n`);
  assert.ok(part, heading);
  const own = part.split(/\n#{2,3} /)[0];
  const steps = [];
  for (const [, block] of own.matchAll(/^```\n(.*?)^```$/gms))
    for (const text of block.split(/\n\n+/).map((one) => one.trim()).filter((one) => one !== '')) {
      if (isCommand(text)) steps.push({ commands: text, shown: '' });
      else if (isShown(text)) steps.at(-1).shown += `${text}\n`;
    }
  assert.ok(steps.length > 1, heading);
  return steps;
}

// The parts of an answer that are the same each time.
const FACTS = /"(?:status|strategy|position|seats|price|code|available|held|confirmed|userId)":(?:"[^"…]*"|\[[^\]]*\]|\w+)|^HTTP\/1.1 \d+ \w+|\d+ violations/gm;

// Runs all steps in one shell, in a folder that looks as the one of `make run`.
async function walk(server, all) {
  const folder = path.dirname(server.dataDir);
  const port = `127.0.0.1:${server.port}`;
  const script = all.map(({ commands }) => `${commands}\nwait; echo; echo "-- end of step"\n`).join('').replaceAll('127.0.0.1:8080', port);
  // A pipe of the shell's own: /dev/stderr can't be opened where it is a socket, as Node has them.
  const { stdout } = await execute('bash', ['-c', `{\n${script}} 2>&1 | cat`], { cwd: folder, env: environment(), timeout: 40000, maxBuffer: 16 << 20 });
  const outputs = stdout.split('-- end of step\n');
  assert.equal(outputs.length, all.length + 1, stdout);
  for (const [i, { commands, shown }] of all.entries())
    for (const [fact] of shown.matchAll(FACTS))
      assert.ok(outputs[i].includes(fact), `${fact} is shown, and not in the answer of\n${commands}\n\n${outputs[i]}`);
  return stdout;
}

async function withDemo(args, use) {
  const folder = tempFolder();
  fs.mkdirSync(path.join(folder, 'build'));
  fs.symlinkSync(BINARY, path.join(folder, 'build/admitone'));
  const server = await start({ dataDir: path.join(folder, 'data'), args: ['--demo', ...args(folder)] });
  await until('the banner is printed', () => server.stdout.includes('Ctrl-C stops it'));
  await use(server);
  await server.stop();
  removeFolder(folder);
}

// The state that the commands change and must restore.
async function stateOf(server) {
  const { queue, waiting, active } = (await server.admin('GET', '/admin/queue/CONCERT/1')).json;
  const { sections } = (await server.call('GET', '/events/CONCERT/1')).json;
  const { events } = (await server.call('GET', '/events')).json;
  return { queue, waiting, active, seats: sections.map(({ held, confirmed }) => [held, confirmed]), events: events.map(({ eventType, eventId }) => `${eventType}/${eventId}`) };
}

test('the walks of README.md and docs/api.md work one after the other, and leave the demo event as it was', () =>
  withDemo(() => [], async (server) => {
    const before = await stateOf(server);
    assert.deepEqual([before.waiting, before.active], [0, 0]);
    const api = read('docs/api.md');
    for (const parts of [[steps(read('README.md'), '## A first sale')], [steps(api, '### A walk'), steps(api, '### A sale'), steps(api, '### A queued sale')], [steps(read('README.md'), '## A first sale')]]) {
      await walk(server, parts.flat());
      assert.deepEqual(await stateOf(server), before);
    }
  }));

// As a reader would do it: replaces the names by the values that were shown.
async function followBanner(server, { adminUrl = server.url } = {}) {
  const commands = server.stdout.split('\n\n').filter((text) => text.startsWith('  curl'));
  const [patch, enters, listen, confirm] = commands;
  assert.equal(commands.length, 4, server.stdout);
  assert.ok(patch.includes(`${adminUrl}/admin/queue/CONCERT/1`), patch);
  const shell = async (text) => (await execute('bash', ['-c', text], { env: environment(), timeout: 20000 })).stdout;
  const parse = (text) => [...text.matchAll(/\{"(?:entryToken|id|eventType)".*?\}(?=\{|$)/g)].map(([one]) => JSON.parse(one));
  assert.equal(JSON.parse(await shell(patch)).queue.maxActive, 1);
  const [ann, ben] = parse(await shell(enters.replaceAll('\n  curl', '\necho\n  curl')).then((text) => text.replaceAll('\n', '')));
  assert.deepEqual([ann.status, ben.status], ['ACTIVE', 'WAITING']);
  const fill = (text, id) => text.replaceAll('TOKEN-OF-BEN', ben.entryToken).replaceAll('TOKEN-OF-ANN', ann.entryToken).replaceAll('/ID/', `/${id}/`);
  const [, hold] = fill(listen).split(/(?<=&)\n/);
  const held = JSON.parse(await shell(hold));
  assert.equal(held.status, 'HELD');
  assert.equal(JSON.parse(await shell(fill(confirm, held.id))).status, 'CONFIRMED');
  const stream = await shell(`${fill(listen).split(/(?<=&)\n/)[0]}\nwait`);
  assert.match(stream, /"status":"ACTIVE"/);
}

const KEY = 'a key of the shop, long enough';
const AUTHS = {
  auto: () => [],
  trusted: () => ['--users-auth', 'trusted'],
  anonymous: () => ['--users-auth', 'anonymous'],
  signed: (folder) => {
    const file = path.join(folder, 'users.key');
    fs.writeFileSync(file, `${KEY}\n`, { mode: 0o600 });
    return ['--users-auth', 'signed', '--users-key-file', file];
  },
};

for (const [auth, args] of Object.entries(AUTHS))
  test(`what the demo's banner says can be done with users.auth ${auth}`, () => withDemo(args, followBanner));

test("the demo's banner sends the admin's requests where the admin paths are", () =>
  withDemo(() => ['--admin-listen', '127.0.0.1:0'], async (server) => {
    const [, address] = /msg="listening for the admin" addr=(\S+)/.exec(server.stderr);
    await followBanner(server, { adminUrl: `http://${address}` });
  }));
