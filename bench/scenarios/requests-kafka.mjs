// The same as `requests`, with the feed in Kafka: how many asynchronous requests are accepted per
// second, each answered when the broker has acknowledged it, while none is decided; and how long a
// request takes from its acceptance to its result under a moderate load. Node, Redis, PostgreSQL,
// Kafka and load share both cores.

import { quantiles } from '../lib/admitone.mjs'
import { servicesCpu, startNode, startServices } from '../lib/cluster.mjs'
import { stop, waitFor } from '../lib/processes.mjs'
import { openSale, reserveOnce } from '../lib/reserve.mjs'
import { ROOM_NAMES } from '../lib/room.mjs'
import { short } from '../lib/statistics.mjs'
import { wrkAgainst } from '../lib/wrk.mjs'

export const name = 'requests-kafka'
export const title = 'POST /api/v4/queue with the feed in Kafka, 256 connections, all sharing two cores'
export const order = 57

const PATH = '/api/v4/queue'
const CONNECTIONS = 256
const PAUSE_MS = 500
const DECIDED = 'admitone_request_decided_seconds'
const BODY = JSON.stringify({ ...ROOM_NAMES, section: 'A', quantity: 1 })

const loadOf = (file, ...pause) => ({ connections: CONNECTIONS, script: 'reserve.lua', scriptArgs: [PATH, BODY, file, ...pause.map(String)] })

async function openNode(services, prefix, ...flags) {
  const node = await startNode(services, ['--feed', services.KAFKA_URL, '--feed-topic-prefix', prefix, ...flags])
  await waitFor(node.process, 'Kafka takes requests', async () => (await node.metrics()).get('admitone_feed_available') === 1)
  return node
}

// Accepts and decides at the same time, with a pause before each request.
async function paced(services, { seconds, progress }) {
  const node = await openNode(services, 'paced.')
  const { file } = await openSale(node, 'slot')
  const total = (metrics) => [...metrics].filter(([key]) => key.startsWith('admitone_requests_decided_total')).reduce((sum, [, n]) => sum + n, 0)
  progress('paced, accepting and deciding')
  const before = await node.metrics()
  const got = await wrkAgainst(node, node.url, { ...loadOf(file, PAUSE_MS), seconds })
  await waitFor(node.process, 'all requests are decided', async () => total(await node.metrics()) >= got.requests, 120_000)
  const after = await node.metrics()
  await stop(node.process)
  const [p50, p99] = quantiles(before, after, DECIDED, [0.5, 0.99])
  return { perSecond: got.perSecond, p50Ms: p50 * 1000, p99Ms: p99 * 1000 }
}

export async function run(given) {
  const { repeats, seconds, progress } = given
  const services = startServices(['kafka'])
  progress('users enter')
  const node = await openNode(services, 'accept.', '--feed-consume=false')
  const { file, token } = await openSale(node, 'slot')
  await reserveOnce(node, BODY, token, { path: PATH, status: 202 })
  await wrkAgainst(node, node.url, { ...loadOf(file), seconds: 1 })
  const before = servicesCpu(services)
  const runs = []
  for (let i = 1; i <= repeats; i++) {
    progress(`accepting, ${i} of ${repeats}`)
    runs.push(await wrkAgainst(node, node.url, { ...loadOf(file), seconds }))
  }
  const after = servicesCpu(services)
  await stop(node.process)
  const result = await paced(services, given)
  const requests = runs.reduce((sum, one) => sum + one.requests, 0)
  const each = (server) => short((after[server] - before[server]) / requests)
  return {
    rows: [
      { measure: 'accepted/s', ours: runs.map((one) => one.perSecond), bar: { least: 10_000 } },
      { measure: 'CPU µs per request', ours: runs.map((one) => one.cpuPerRequest) },
      { measure: 'latency p50, ms', ours: runs.map((one) => one.p50Ms) },
      { measure: 'latency p99, ms', ours: runs.map((one) => one.p99Ms) },
      { measure: 'paced: accepted/s', ours: [result.perSecond] },
      { measure: 'paced: time to result p50, ms', ours: [result.p50Ms] },
      { measure: 'paced: time to result p99, ms', ours: [result.p99Ms] },
    ],
    notes: [
      `CPU µs per accepted request: Kafka ${each('kafka')}, Redis ${each('redis')}, PostgreSQL ${each('postgres')}`,
      `paced: each connection pauses ${PAUSE_MS} ms on average; times to result are the upper bounds of buckets`,
    ],
  }
}
