// The cost of rankings for reservations: the load of `reserve` alternately on a server with rankings
// and on one without, the peer. Once as fast as possible, where counting competes with sales for the
// one core; and once with pauses, as on a server that is not overloaded.

import { dataPlace } from '../lib/machine.mjs'
import { waitFor } from '../lib/processes.mjs'
import { startSelling } from '../lib/reserve.mjs'
import { ROOM_NAMES } from '../lib/room.mjs'
import { wrkAgainst } from '../lib/wrk.mjs'

export const name = 'reserve-rankings'
export const title = 'the load of reserve, with rankings; the peer: without'
export const order = 55

const WARM_UP_SECONDS = 1
const LOADS = { paced: { section: 'A', pauseMs: 20 }, full: { section: 'B' } }
// If the ratios of repeats differ by more than this, other processes have disturbed them.
const NOISE_MAX = 0.2
const HELD = 'admitone_reservation_outcomes_total{strategy="slot",outcome="held"}'
const COUNTED = 'admitone_rankings_sales_total'

// How far apart the middle half of the values lies.
function middleHalf(values) {
  const sorted = [...values].sort((a, b) => a - b)
  const at = (part) => sorted[Math.round(part * (sorted.length - 1))]
  return at(0.75) - at(0.25)
}

// Sales that are not counted yet.
async function behind(server) {
  const metrics = await server.metrics()
  return metrics.get(HELD) - metrics.get(COUNTED)
}

async function isCounted(server) {
  const { eventType, eventId } = ROOM_NAMES
  await waitFor(server.process, 'all is counted', async () => (await behind(server)) === 0)
  const held = (await server.metrics()).get(HELD)
  for (const board of ['daily', 'monthly', 'soldout']) {
    const { reservationCount } = await (await server.get(`/rankings/${board}/${eventType}/${eventId}`)).json()
    if (reservationCount !== held) throw new Error(`${board} has ${reservationCount} of ${held} reservations`)
  }
}

// Loads both in turn, with and without pauses. Each comes first in every other repeat, for ledgers
// grow.
async function inTurn(pair, { repeats, seconds, progress }) {
  const load = async (one, forSeconds, how) => {
    const got = await wrkAgainst(one.server, one.server.url, { ...one.load(how), seconds: forSeconds })
    one.answered += got.requests
    one.loads++
    if (one.isKept) {
      one.behind.push(await behind(one.server))
      // Sales that are not counted yet must not disturb the other server's run.
      await isCounted(one.server)
    }
    return got
  }
  for (const one of pair) {
    progress(`warm-up, ${one.name}`)
    await load(one, WARM_UP_SECONDS)
  }
  for (let i = 0; i < repeats; i++)
    for (const [kind, how] of Object.entries(LOADS))
      for (const one of i % 2 === 0 ? pair : pair.toReversed()) {
        progress(`${i + 1} of ${repeats}, ${kind}, ${one.name}`)
        one.runs[kind].push(await load(one, seconds, how))
      }
}

const startOne = async (isKept, flags) => ({
  ...(await startSelling('slot', { flags, twoSections: true })),
  name: isKept ? 'with rankings' : 'without',
  isKept,
  runs: Object.fromEntries(Object.keys(LOADS).map((kind) => [kind, []])),
  answered: 0,
  loads: 0,
  behind: [],
})

export async function run(given) {
  given.progress('users enter')
  const without = await startOne(false, ['--rankings-enabled=false'])
  const kept = await startOne(true, [])
  await inTurn([without, kept], given)
  given.progress('checking the ledgers')
  await without.finish({ answered: without.answered, runs: without.loads })
  const { inLedger } = await kept.finish({ answered: kept.answered, runs: kept.loads })

  const { isDisk, note } = dataPlace(kept.server.data)
  const row = (kind, measure, pick, bar) => {
    const [ours, peer] = [kept, without].map((one) => one.runs[kind].map(pick))
    const doubtful = !isDisk || middleHalf(ours.map((value, i) => value / peer[i])) > NOISE_MAX
    return { measure: `${kind}: ${measure}`, ours, peer, bar, doubtful }
  }
  return {
    rows: [
      row('paced', 'latency p50, ms', (r) => r.p50Ms, { ratioMost: 1.1 }),
      row('paced', 'latency p99, ms', (r) => r.p99Ms),
      row('paced', 'requests/s', (r) => r.perSecond),
      row('full', 'latency p50, ms', (r) => r.p50Ms),
      row('full', 'latency p99, ms', (r) => r.p99Ms),
      row('full', 'requests/s', (r) => r.perSecond, { ratioLeast: 0.9 }),
      row('full', 'CPU µs per request', (r) => r.cpuPerRequest, { ratioMost: 1.1 }),
    ],
    notes: [
      `${given.repeats} × ${given.seconds} s each, in turn`,
      `${inLedger.toLocaleString('en-US')} were counted, each once; when a run ended, at most ` +
        `${Math.max(...kept.behind).toLocaleString('en-US')} were not yet`,
      note,
    ],
  }
}
