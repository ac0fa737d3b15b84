// How many seats are held per second by the strategy without locks, each answered when it is durable.
// nginx discards the same requests and answers at once.

import { measureReserve } from '../lib/reserve.mjs'

export const name = 'reserve'
export const title = 'POST /reservations of 1 seat of 1,000,000, strategy slot, answered when durable, 256 connections'
export const order = 52

export async function run(given) {
  const { row, isDisk, notes } = await measureReserve('slot', given)
  const rate = row('requests/s', (r) => r.perSecond, { ratioLeast: 0.4 })
  return {
    rows: [
      { ...rate, doubtful: rate.doubtful || !isDisk },
      row('CPU µs per request', (r) => r.cpuPerRequest),
      row('latency p50, ms', (r) => r.p50Ms),
      row('latency p99, ms', (r) => r.p99Ms),
    ],
    notes,
  }
}
