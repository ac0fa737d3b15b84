// A client of a Kafka broker on 127.0.0.1: kcat to write and read, and the protocol itself to create a
// topic, which kcat can't. The broker creates no topic by itself.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { once } from 'node:events';
import net from 'node:net';

const CREATE_TOPICS = 19;
const CREATE_TOPICS_VERSION = 2;
const TIMEOUT_MS = 30000;

const int8 = (value) => Buffer.from([value]);
const int16 = (value) => Buffer.from([value >> 8, value & 0xff]);
const int32 = (value) => Buffer.concat([int16(value >> 16), int16(value & 0xffff)]);
const text = (value) => Buffer.concat([int16(Buffer.byteLength(value)), Buffer.from(value)]);

// The response to a request, without its size and correlation id.
async function ask(port, key, version, body) {
  const request = Buffer.concat([int16(key), int16(version), int32(1), text('test'), body]);
  const socket = net.connect(Number(port), '127.0.0.1');
  const timer = setTimeout(() => socket.destroy(new Error('Kafka did not answer')), TIMEOUT_MS);
  try {
    socket.write(Buffer.concat([int32(request.length), request]));
    let got = Buffer.alloc(0);
    while (got.length < 4 || got.length < 4 + got.readInt32BE(0)) got = Buffer.concat([got, ...(await once(socket, 'data'))]);
    return got.subarray(8);
  } finally {
    clearTimeout(timer);
    socket.destroy();
  }
}

export async function createTopic(port, name, partitions = 1) {
  const topic = [text(name), int32(partitions), int16(1), int32(0), int32(0)]; // one replica, no settings
  const body = Buffer.concat([int32(1), ...topic, int32(TIMEOUT_MS), int8(0)]);
  const answer = await ask(port, CREATE_TOPICS, CREATE_TOPICS_VERSION, body);
  const at = 4 + 4 + 2 + Buffer.byteLength(name); // after throttle_time_ms, the number of topics, the name
  assert.equal(answer.readInt16BE(at), 0, `Kafka's error code for the topic ${name}`);
}

function kcat(port, args, input) {
  const all = ['-q', '-b', `127.0.0.1:${port}`, ...args];
  const done = spawnSync('kcat', all, { encoding: 'utf8', input, timeout: TIMEOUT_MS, maxBuffer: 256 << 20 });
  assert.ifError(done.error);
  assert.equal(done.status, 0, `kcat ${all.join(' ')}: ${done.stderr}`);
  return done.stdout;
}

// Writes messages without a line break, and returns when the broker has acknowledged all.
export function produce(port, topic, messages) {
  kcat(port, ['-P', '-t', topic, '-X', 'acks=all'], messages.map((message) => `${message}\n`).join(''));
}

// All messages of a topic, as text; those of one partition are in order.
export function consume(port, topic) {
  return kcat(port, ['-C', '-t', topic, '-o', 'beginning', '-e']).split('\n').slice(0, -1);
}
