// The memory of an idle keep-alive connection, after one request.

import { fileURLToPath } from 'node:url'

import { EVENT, startAdmitone } from '../lib/admitone.mjs'
import { cores, memoryBytes, openFilesMax } from '../lib/machine.mjs'
import { start, stop, waitFor } from '../lib/processes.mjs'
import { startNginx } from '../peers/nginx.mjs'

export const name = 'idle-connections'
export const title = '15,000 idle keep-alive connections, after one GET on each'
export const order = 20

const PATH = '/events/CONCERT/1'
const WANTED = 15_000
const FILES_FOR_OTHERS = 500
const OPEN_MS_MAX = 120_000
const CLIENT = fileURLToPath(new URL('../lib/idle-client.mjs', import.meta.url))

async function openIdle(url, count) {
  const client = start(cores.load, process.execPath, [CLIENT, new URL(url).port, count, PATH].map(String), {
    stdio: ['pipe', 'pipe', 'inherit'],
  })
  let ready = false
  client.child.stdout.on('data', () => (ready = true))
  await waitFor(client, 'its connections are open', () => ready, OPEN_MS_MAX)
  return client
}

// Bytes that the server grew by per connection, since it held `before` bytes.
async function grownPerConnection(server, before, count) {
  const client = await openIdle(server.url, count)
  const grown = memoryBytes(server.pid).own - before
  await stop(client)
  return grown / count
}

export async function run({ progress }) {
  const count = Math.min(WANTED, Math.floor(openFilesMax() / 1.1) - FILES_FOR_OTHERS)

  progress(`admitone, opening ${count} connections`)
  const ours = await startAdmitone()
  await ours.admin('PUT', PATH, EVENT)
  const answer = await ours.get(PATH)
  const body = await answer.text()
  const ourBytes = await grownPerConnection(ours, memoryBytes(ours.pid).own, count)
  await stop(ours.process)

  // nginx allocates memory for all its connections at its start, so the memory before the first
  // connection is that of an nginx with a small table. It closes idle connections to keep a sixteenth
  // free.
  progress(`nginx, opening ${count} connections`)
  const contentType = answer.headers.get('content-type')
  const small = await startNginx({ body, contentType, connections: 64 })
  const before = memoryBytes(small.pid).own
  await stop(small.process)
  const nginx = await startNginx({ body, contentType, connections: Math.ceil(count * 1.1) })
  const theirBytes = await grownPerConnection(nginx, before, count)
  await stop(nginx.process)

  return {
    rows: [{ measure: 'bytes per connection', ours: [ourBytes], peer: [theirBytes], bar: { most: 1024 } }],
    notes: [
      'the growth of its anonymous memory; what the kernel holds for a socket is not in it',
      ...(count < WANTED ? [`only ${count}: the limit on open files is ${openFilesMax()}`] : []),
    ],
  }
}
