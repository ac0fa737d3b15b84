// How many asynchronous requests are accepted per second, each answered when it is durable, while none
// is decided; how fast the backlog is decided then; and how long a request takes from its acceptance
// to its result under a moderate load. nginx discards the same requests and answers at once.

import { audited, batchNote, quantiles, startAdmitone, stopWhenWritten } from '../lib/admitone.mjs'
import { dataPlace } from '../lib/machine.mjs'
import { inTurn } from '../lib/pairs.mjs'
import { stop, waitFor } from '../lib/processes.mjs'
import { openSale, reserveOnce } from '../lib/reserve.mjs'
import { ROOM_NAMES } from '../lib/room.mjs'
import { wrkAgainst } from '../lib/wrk.mjs'
import { startNginx } from '../peers/nginx.mjs'

export const name = 'requests'
export const title = 'POST /api/v4/queue, asynchronous requests for 1 seat, accepted when durable, 256 connections'
export const order = 56

const PATH = '/api/v4/queue'
const CONNECTIONS = 256
const PAUSE_MS = 100
const DECIDED = 'admitone_request_decided_seconds'
const BODY = JSON.stringify({ ...ROOM_NAMES, section: 'A', quantity: 1 })

const loadOf = (file, ...pause) => ({ connections: CONNECTIONS, script: 'reserve.lua', scriptArgs: [PATH, BODY, file, ...pause.map(String)] })

// Checks that every answered request is in the ledger. Requests under way when wrk ended may be in it.
async function checked(data, { answered, runs }) {
  const there = (await audited(data)).get('request has its result')
  const most = answered + runs * CONNECTIONS
  if (there < answered || there > most)
    throw new Error(`the ledger has ${there} requests; there should be ${answered} to ${most}`)
  return there
}

// Decides what the last server has accepted. Returns { count, seconds }.
async function decideAll(data, progress) {
  const server = await startAdmitone([], { data })
  const began = performance.now()
  const count = (await server.metrics()).get('admitone_requests_undecided')
  await waitFor(server.process, 'all requests are decided', async () => {
    const left = (await server.metrics()).get('admitone_requests_undecided')
    progress(`deciding, ${left.toLocaleString('en-US')} left`)
    return left === 0
  }, 600_000)
  const seconds = (performance.now() - began) / 1000
  await stopWhenWritten(server)
  return { count, seconds }
}

// Accepts and decides at the same time, with a pause before each request.
async function paced({ seconds, progress }) {
  const server = await startAdmitone()
  const { file } = await openSale(server, 'slot')
  progress('paced, accepting and deciding')
  const before = await server.metrics()
  const got = await wrkAgainst(server, server.url, { ...loadOf(file, PAUSE_MS), seconds })
  await waitFor(server.process, 'all requests are decided', async () => (await server.metrics()).get('admitone_requests_undecided') === 0)
  const after = await stopWhenWritten(server)
  const [p50, p99] = quantiles(before, after, DECIDED, [0.5, 0.99])
  return { perSecond: got.perSecond, p50Ms: p50 * 1000, p99Ms: p99 * 1000 }
}

export async function run(given) {
  given.progress('users enter')
  const ours = await startAdmitone(['--feed-consume=false'])
  const { file, token } = await openSale(ours, 'slot')
  const first = await reserveOnce(ours, BODY, token, { path: PATH, status: 202 })
  const nginx = await startNginx({ body: first, contentType: 'application/json' })
  const before = await ours.metrics()
  const { row, notes, answered, runs } = await inTurn({ nginx, ours, load: () => loadOf(file), waits: true }, given)
  await stop(nginx.process)
  const after = await stopWhenWritten(ours)
  given.progress('checking the ledger')
  const there = await checked(ours.data, { answered: answered + 1, runs })
  const decided = await decideAll(ours.data, given.progress)
  if (decided.count > there) throw new Error(`${decided.count} undecided requests of ${there}`)
  await checked(ours.data, { answered: answered + 1, runs })
  const result = await paced(given)

  const place = dataPlace(ours.data)
  const cpu = row('CPU µs per request', (r) => r.cpuPerRequest, { ratioMost: 2 })
  return {
    rows: [
      { ...cpu, doubtful: cpu.doubtful || !place.isDisk },
      row('accepted/s', (r) => r.perSecond),
      row('latency p50, ms', (r) => r.p50Ms),
      row('latency p99, ms', (r) => r.p99Ms),
      { measure: 'decided/s, from the backlog', ours: [decided.count / decided.seconds] },
      { measure: 'paced: accepted/s', ours: [result.perSecond] },
      { measure: 'paced: time to result p50, ms', ours: [result.p50Ms] },
      { measure: 'paced: time to result p99, ms', ours: [result.p99Ms] },
    ],
    notes: [
      batchNote(before, after),
      `${there.toLocaleString('en-US')} requests were accepted, and each got one result afterwards`,
      place.note,
      ...notes,
      `paced: each connection pauses ${PAUSE_MS} ms on average; times to result are the upper bounds of buckets`,
    ],
  }
}
