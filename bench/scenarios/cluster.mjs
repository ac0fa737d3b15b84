// A node on Redis and PostgreSQL, under the loads of queue-status, queue-enter and reserve: against
// redis-benchmark with the same function calls over as many connections, and against the embedded
// default. Server, Redis, PostgreSQL and load share both cores.

import { writeFileSync } from 'node:fs'

import { startAdmitone } from '../lib/admitone.mjs'
import { callsDuring, onCopy, redisBenchmark, servicesCpu, startNode, startServices } from '../lib/cluster.mjs'
import { cores } from '../lib/machine.mjs'
import { stop, temporaryFolder } from '../lib/processes.mjs'
import { changeRules, enter, enterMany, letIn, openRoom, ROOM, ROOM_NAMES } from '../lib/room.mjs'
import { median, short } from '../lib/statistics.mjs'
import { wrkAgainst } from '../lib/wrk.mjs'

export const name = 'cluster'
export const title = 'status, enter and reserve on Redis and PostgreSQL, all sharing two cores'
export const order = 60

const WAITING = 5_000
const ACTIVE = 2_000
const STEP = 1_009
const SECTION = { id: 'A', name: 'Floor A', capacity: 1_000_000, price: 150_000 }
const BODY = JSON.stringify({ ...ROOM_NAMES, section: SECTION.id, quantity: 1 })
// A first guess, from which the length of a run of redis-benchmark follows.
const GUESS_PER_SECOND = 20_000

const tokenFile = (tokens) => {
  const file = `${temporaryFolder()}/tokens`
  writeFileSync(file, tokens.map((_, i) => tokens[(i * STEP) % tokens.length]).join('\n'))
  return file
}

let usersFrom = 0

async function reserveOnce(server, token) {
  const headers = { 'content-type': 'application/json', authorization: `Bearer ${token}` }
  const answer = await fetch(`${server.url}/reservations`, { method: 'POST', headers, body: BODY })
  if (answer.status !== 201) throw new Error(`a reservation was answered with ${answer.status}: ${await answer.text()}`)
}

// The room in which many are ACTIVE, and then many wait. Gives back the loads by name, and for each
// something to do once: what Redis is called with is then what the load calls it with.
async function prepare(server) {
  const wide = { maxActive: 1_000_000, entryBatchSize: 100_000 }
  await openRoom(server, { queue: wide, sections: [SECTION], holdSeconds: 86_400, maxPerUser: 1_000 })
  const active = await letIn(server, ACTIVE)
  await changeRules(server, { maxActive: 1, entryBatchSize: 1, entryIntervalSeconds: 3600 })
  const waiting = await enterMany(server, WAITING, { from: ACTIVE + 1 })
  const status = tokenFile(waiting)
  const reserve = tokenFile(active)
  const statusPath = `${ROOM}/status`
  return {
    status: {
      connections: 64,
      once: () => server.get(statusPath, { authorization: `Bearer ${waiting[WAITING / 2]}` }),
      load: () => ({ script: 'queue-status.lua', scriptArgs: [statusPath, status] }),
      functions: ['look_seen'], // a poll records that its user is there
    },
    enter: {
      connections: 256,
      once: () => enter(server, 'user999999999999'),
      load: () => ({ script: 'queue-enter.lua', scriptArgs: [`${ROOM}/enter`, String(++usersFrom * 100_000_000)] }),
      functions: ['enter', 'settle'],
    },
    reserve: {
      connections: 256,
      once: () => reserveOnce(server, active[0]),
      load: () => ({ script: 'reserve.lua', scriptArgs: ['/reservations', BODY, reserve] }),
      functions: ['claim', 'claim_settle'],
    },
  }
}

// The arguments that change from call to call also change in redis-benchmark: the user, and the
// claimed id.
function varied(words) {
  return words.map((word) =>
    word === 'user999999999999' ? 'user__rand_int__' : word.replace(/^([0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?)[0-9a-f]{12}$/, '$1__rand_int__'),
  )
}

// Requests per second that Redis alone could answer: a request needs each of the calls once.
async function redisAlone(services, calls, functions, options) {
  let seconds = 0
  for (const one of functions) {
    if (!calls.has(one)) throw new Error(`Redis was not called with ${one}`)
    seconds += 1 / (await redisBenchmark(services, varied(onCopy(services, calls.get(one))), { ...options, perSecond: GUESS_PER_SECOND }))
  }
  return 1 / seconds
}

async function onServer(server, kind, seconds) {
  return wrkAgainst(server, server.url, { connections: kind.connections, seconds, ...kind.load() })
}

export async function run({ repeats, seconds, progress }) {
  const services = startServices()
  const node = await startNode(services)
  const embedded = await startAdmitone([], { core: cores.both })
  progress('people enter')
  const kinds = await prepare(node)
  const alone = await prepare(embedded)
  const rows = []
  const notes = []
  for (const [what, kind] of Object.entries(kinds)) {
    const calls = await callsDuring(services, kind.once)
    const got = { node: [], redis: [], embedded: [] }
    const cpu = { admitone: 0, redis: 0, postgres: 0, requests: 0 }
    await onServer(node, kind, 1)
    await onServer(embedded, alone[what], 1)
    for (let i = 1; i <= repeats; i++) {
      progress(`${what}, ${i} of ${repeats}`)
      const before = servicesCpu(services)
      const ours = await onServer(node, kind, seconds)
      const after = servicesCpu(services)
      cpu.admitone += ours.cpuPerRequest * ours.requests
      cpu.redis += after.redis - before.redis
      cpu.postgres += after.postgres - before.postgres
      cpu.requests += ours.requests
      got.node.push(ours.perSecond)
      got.redis.push(await redisAlone(services, calls, kind.functions, { connections: kind.connections, seconds: seconds / kind.functions.length }))
      got.embedded.push((await onServer(embedded, alone[what], seconds)).perSecond)
    }
    const bar = what === 'status' ? { ratioLeast: 0.6 } : undefined
    rows.push({ measure: `${what}/s, against redis-benchmark`, ours: got.node, peer: got.redis, bar })
    rows.push({ measure: `${what}/s, against memory+sqlite`, ours: got.node, peer: got.embedded })
    const each = (total) => short(total / cpu.requests)
    notes.push(`${what}: CPU µs per request: admitone ${each(cpu.admitone)}, Redis ${each(cpu.redis)}, PostgreSQL ${each(cpu.postgres)}`)
  }
  await stop(node.process)
  await stop(embedded.process)
  return { rows, notes: [...notes, `medians of ${repeats} × ${seconds} s, in turn`] }
}
