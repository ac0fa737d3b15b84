// The topics of the feed on Kafka, read and written with kcat: the requests of a cluster and its dead
// letters. `dataDir`: the cluster's data folder.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import fs from 'node:fs';
import path from 'node:path';
import { homeOf } from './cluster.mjs';

const REQUESTS = 'ticket-reservation-events';
const DEAD = 'ticket-reservation-events.dlq';
const TIMEOUT_MS = 60000;

export function kcat(url, args) {
  const all = ['-q', '-b', url.replace('kafka://', ''), ...args];
  const done = spawnSync('kcat', all, { encoding: 'utf8', timeout: TIMEOUT_MS, maxBuffer: 256 << 20 });
  assert.ifError(done.error);
  assert.equal(done.status, 0, `kcat ${all.join(' ')}: ${done.stderr}`);
  return done.stdout;
}

// All messages of a topic: { partition, offset, key, payload, headers }, those of a partition in order.
export function readTopic(url, topic) {
  const lines = kcat(url, ['-C', '-t', topic, '-o', 'beginning', '-e', '-J']).split('\n').slice(0, -1);
  return lines.map((line) => {
    const { partition, offset, key, payload, headers = [] } = JSON.parse(line);
    const named = {};
    for (let i = 0; i < headers.length; i += 2) named[headers[i]] = headers[i + 1];
    return { partition, offset, key, payload, headers: named };
  });
}

export function messagesOf(dataDir) {
  const { url, prefix } = homeOf(dataDir).kafka;
  return readTopic(url, `${prefix}${REQUESTS}`);
}

export function deadLettersOf(dataDir) {
  const { url, prefix } = homeOf(dataDir).kafka;
  return readTopic(url, `${prefix}${DEAD}`);
}

// Writes messages to the topic of requests, in order. A message is text, or an object that becomes
// JSON. `settings`: of librdkafka.
export function produceTo(dataDir, messages, { key, partition, headers = {}, settings = {} } = {}) {
  const { url, prefix } = homeOf(dataDir).kafka;
  const folder = fs.mkdtempSync(path.join(dataDir, 'kcat-'));
  const files = messages.map((message, i) => {
    const file = path.join(folder, String(i));
    fs.writeFileSync(file, typeof message === 'string' ? message : JSON.stringify(message));
    return file;
  });
  const options = [
    ...(key === undefined ? [] : ['-k', key]),
    ...(partition === undefined ? [] : ['-p', String(partition)]),
    ...Object.entries(headers).flatMap(([name, value]) => ['-H', `${name}=${value}`]),
    ...Object.entries({ acks: 'all', ...settings }).flatMap(([name, value]) => ['-X', `${name}=${value}`]),
  ];
  kcat(url, ['-P', '-t', `${prefix}${REQUESTS}`, ...options, ...files]);
  fs.rmSync(folder, { recursive: true });
}

// How many partitions the node has, by its log.
export function partitionsOf(node) {
  const sum = (pattern) => [...node.stderr.matchAll(pattern)].reduce((all, [, n]) => all + Number(n), 0);
  return sum(/kafka assigned partitions of requests to this node" partitions=(\d+)/g) - sum(/kafka took partitions of requests from this node" partitions=(\d+)/g);
}
