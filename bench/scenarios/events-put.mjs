// How many durable changes of events the ledger writes per second, and how many share an fsync.

import { batchNote, startAdmitone } from '../lib/admitone.mjs'
import { dataPlace } from '../lib/machine.mjs'
import { stop } from '../lib/processes.mjs'
import { wrkAgainst } from '../lib/wrk.mjs'

export const name = 'events-put'
export const title = 'PUT /admin/events/{type}/{id}, answered when durable, 64 connections'
export const order = 30

const EVENTS = 256
const REPEATS_MAX = 3

export async function run({ repeats, seconds, progress }) {
  const ours = await startAdmitone()
  const options = { seconds, script: 'events-put.lua', scriptArgs: [ours.adminKey, String(EVENTS)] }
  const times = Math.min(repeats, REPEATS_MAX)
  const runs = []
  progress('warm-up')
  await wrkAgainst(ours, ours.url, { ...options, seconds: 1 })
  const before = await ours.metrics()
  for (let i = 1; i <= times; i++) {
    progress(`${i} of ${times}`)
    runs.push(await wrkAgainst(ours, ours.url, options))
  }
  const after = await ours.metrics()
  await stop(ours.process)

  const row = (measure, pick) => ({ measure, ours: runs.map(pick) })
  return {
    rows: [
      row('changes/s', (r) => r.perSecond),
      row('CPU µs per change', (r) => r.cpuPerRequest),
      row('latency p50, ms', (r) => r.p50Ms),
      row('latency p99, ms', (r) => r.p99Ms),
    ],
    notes: [batchNote(before, after), dataPlace(ours.data).note],
  }
}
