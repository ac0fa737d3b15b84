// JSON Web Tokens as a shop creates them and as an origin server verifies them; also invalid ones.
import assert from 'node:assert/strict';
import crypto from 'node:crypto';
import fs from 'node:fs';
import path from 'node:path';
import { removeFolder, start, tempFolder } from './server.mjs';

const encode = (value) => Buffer.from(typeof value === 'string' ? value : JSON.stringify(value)).toString('base64url');
const sign = (text, key) => crypto.createHmac('sha256', key).update(text).digest('base64url');

// `claims` and `header` may be texts, for what JSON.stringify doesn't write.
export function jwt(key, claims, header = { alg: 'HS256', typ: 'JWT' }) {
  const text = `${encode(header)}.${encode(claims)}`;
  return `${text}.${sign(text, key)}`;
}

// Its claims, when it is an HS256 one of this key.
export function readJwt(text, key) {
  const [header, claims, signature] = text.split('.');
  assert.deepEqual(JSON.parse(Buffer.from(header, 'base64url')), { alg: 'HS256', typ: 'JWT' });
  assert.equal(signature, sign(`${header}.${claims}`, key), 'the signature');
  return JSON.parse(Buffer.from(claims, 'base64url'));
}

// A server that accepts assertions that were signed with this key.
export async function startSigned(key, args = []) {
  const folder = tempFolder();
  const file = path.join(folder, 'key');
  fs.writeFileSync(file, `${key}\n`, { mode: 0o600 });
  const server = await start({ args: [...args, '--users-auth', 'signed', '--users-key-file', file] });
  const stop = server.stop.bind(server);
  server.stop = async () => {
    await stop();
    removeFolder(folder);
  };
  return server;
}
