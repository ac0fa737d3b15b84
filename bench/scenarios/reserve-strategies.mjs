// The strategies other than that of `reserve`, each on a separate server. `lock` is slow by design:
// the whole section waits for each commit.

import { measureReserve } from '../lib/reserve.mjs'

export const name = 'reserve-strategies'
export const title = 'the same by the other strategies'
export const order = 54

const STRATEGIES = ['lock', 'adaptive', 'optimistic', 'pessimistic', 'distributed-lock']
const REPEATS_MAX = 3

export async function run(given) {
  const repeats = Math.min(given.repeats, REPEATS_MAX)
  const rows = []
  const notes = []
  for (const strategy of STRATEGIES) {
    const got = await measureReserve(strategy, { ...given, repeats })
    rows.push(
      got.row(`${strategy}: requests/s`, (r) => r.perSecond),
      got.row(`${strategy}: CPU µs per request`, (r) => r.cpuPerRequest),
      got.row(`${strategy}: latency p50, ms`, (r) => r.p50Ms),
      got.row(`${strategy}: latency p99, ms`, (r) => r.p99Ms),
    )
    notes.push(...got.notes.map((note) => `${strategy}: ${note}`))
  }
  return { rows, notes }
}
