// How many users enter a queue per second, each answered when the entry is durable. nginx discards
// the same requests and answers at once.

import { audited, batchNote, startAdmitone, stopWhenWritten } from '../lib/admitone.mjs'
import { cores, dataPlace } from '../lib/machine.mjs'
import { inTurn } from '../lib/pairs.mjs'
import { stop } from '../lib/processes.mjs'
import { enter, inRoom, openRoom, ROOM } from '../lib/room.mjs'
import { wrkAgainst } from '../lib/wrk.mjs'
import { startNginx } from '../peers/nginx.mjs'

export const name = 'queue-enter'
export const title = 'POST /queue/{type}/{id}/enter of new users, answered when durable, 256 connections'
export const order = 50

const PATH = `${ROOM}/enter`
const CONNECTIONS = 256
// More than a run can enter.
const USERS_PER_RUN = 100_000_000
const BOTH_CORES_REPEATS_MAX = 3

let runsBegun = 0
const load = () => ({
  connections: CONNECTIONS,
  script: 'queue-enter.lua',
  scriptArgs: [PATH, String(runsBegun++ * USERS_PER_RUN)],
})

// Stops the server, and checks that every answered entry is in its ledger. Requests under way when wrk
// ended may be in it. `others` is the number of other entries.
async function stopAndCheck(server, { answered, runs, others }) {
  const { waiting, active } = inRoom(await stopWhenWritten(server))
  const there = (await audited(server.data)).get('one live entry per user')
  if (there !== waiting + active)
    throw new Error(`the ledger has ${there} live entries, the queue had ${waiting + active}`)
  const most = answered + others + runs * CONNECTIONS
  if (there < answered + others || there > most)
    throw new Error(`the ledger has ${there} entries; there should be ${answered + others} to ${most}`)
  return there
}

async function onBothCores({ repeats, seconds, progress }) {
  const server = await startAdmitone([], { core: cores.both })
  await openRoom(server)
  const times = Math.min(repeats, BOTH_CORES_REPEATS_MAX)
  const got = []
  for (let i = 0; i <= times; i++) {
    progress(i === 0 ? 'both cores, warm-up' : `both cores, ${i} of ${times}`)
    got.push(await wrkAgainst(server, server.url, { ...load(), seconds: i === 0 ? 1 : seconds }))
  }
  const answered = got.reduce((sum, { requests }) => sum + requests, 0)
  await stopAndCheck(server, { answered, runs: got.length, others: 1 })
  return got.slice(1)
}

export async function run(given) {
  const ours = await startAdmitone()
  await openRoom(ours)
  const answer = JSON.stringify(await enter(ours, 'user999999999999'))
  const nginx = await startNginx({ body: answer, contentType: 'application/json' })
  const before = await ours.metrics()
  const { row, notes, answered, runs } = await inTurn({ nginx, ours, load, waits: true }, given)
  const after = await ours.metrics()
  await stop(nginx.process)
  given.progress('checking the ledger')
  const there = await stopAndCheck(ours, { answered, runs, others: 2 })
  const place = dataPlace(ours.data)
  const both = await onBothCores(given)

  const rate = row('requests/s', (r) => r.perSecond, { ratioLeast: 0.6 })
  return {
    rows: [
      { ...rate, doubtful: rate.doubtful || !place.isDisk },
      row('CPU µs per request', (r) => r.cpuPerRequest),
      row('latency p50, ms', (r) => r.p50Ms),
      row('latency p99, ms', (r) => r.p99Ms),
      { measure: 'requests/s, on both cores', ours: both.map((r) => r.perSecond) },
      { measure: 'CPU µs per request, on both', ours: both.map((r) => r.cpuPerRequest) },
    ],
    notes: [
      batchNote(before, after),
      `${answered.toLocaleString('en-US')} were answered, and the ledger had ` +
        `${there.toLocaleString('en-US')} entries afterwards: nobody is missing`,
      place.note,
      ...notes,
      'on both cores: still one worker, but the ledger may write on the core of the load',
    ],
  }
}
