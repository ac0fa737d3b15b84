// The CPU time that 5,000 idle events cost a node, Redis and PostgreSQL, and the cost of one request
// for /metrics in Redis.

import { startNode, startServices, servicesCpu } from '../lib/cluster.mjs'
import { EVENT } from '../lib/admitone.mjs'
import { cpuMicroseconds } from '../lib/machine.mjs'
import { stop } from '../lib/processes.mjs'

export const name = 'idle-events'
export const title = '5,000 idle events on Redis and PostgreSQL'
export const order = 65

const EVENTS = 5_000
const AT_ONCE = 16
const METRICS = 10
// A snapshot is at most a second old: so each /metrics asks Redis for a new one.
const METRICS_EVERY_MS = 1_200

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms))

async function putEvents(node, progress) {
  let next = 0
  const putSome = async () => {
    while (next < EVENTS) {
      const id = ++next
      await node.admin('PUT', `/events/IDLE/${id}`, EVENT)
      if (id % 500 === 0) progress(`${id} of ${EVENTS} events`)
    }
  }
  await Promise.all(Array.from({ length: AT_ONCE }, putSome))
}

const cpuOf = (node, services) => ({ admitone: cpuMicroseconds(node.pid), ...servicesCpu(services) })

// Microseconds of CPU per second of `act`, by server.
async function cpuPerSecond(node, services, act) {
  const before = cpuOf(node, services)
  const began = performance.now()
  await act()
  const seconds = (performance.now() - began) / 1000
  const after = cpuOf(node, services)
  return Object.fromEntries(Object.keys(before).map((key) => [key, (after[key] - before[key]) / seconds]))
}

async function askMetrics(node) {
  for (let i = 0; i < METRICS; i++) {
    const text = await (await node.get('/metrics')).text()
    if (!text.includes('IDLE/1')) throw new Error('/metrics does not show the events')
    await pause(METRICS_EVERY_MS)
  }
}

export async function run({ repeats, seconds, progress }) {
  const services = startServices()
  const node = await startNode(services)
  await putEvents(node, progress)
  await pause(5_000) // what the making of the events has left to do is done
  const idle = []
  const metrics = []
  const each = { admitone: [], redis: [], postgres: [] }
  for (let i = 1; i <= repeats; i++) {
    progress(`idle, ${i} of ${repeats}`)
    const cpu = await cpuPerSecond(node, services, () => pause(2 * seconds * 1000))
    idle.push((cpu.admitone + cpu.redis) / 10_000)
    for (const key of Object.keys(each)) each[key].push((cpu[key] / 10_000).toFixed(2))
    progress(`metrics, ${i} of ${repeats}`)
    const busy = await cpuPerSecond(node, services, () => askMetrics(node))
    metrics.push(((busy.redis - cpu.redis) * METRICS_EVERY_MS) / 1_000_000)
  }
  await stop(node.process)
  return {
    rows: [
      { measure: 'idle, % of a core, node and Redis', ours: idle, bar: { most: 2 } },
      { measure: 'a /metrics, ms of Redis', ours: metrics, bar: { most: 1 } },
    ],
    notes: Object.entries(each).map(([key, values]) => `${key}: ${values.join(', ')} % of a core, by repeat`),
  }
}
