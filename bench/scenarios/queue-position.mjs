// The time to look up a position among ten million, in the queue itself: no server, no connection.

import { buildMicro, runMicro } from '../lib/micro.mjs'

export const name = 'queue-position'
export const title = 'a position among 10,000,000 who wait, in two lanes'
export const order = 80

const TARGET = 'bench_queue_position'
const REPEATS_MAX = 5

export async function run({ repeats, progress }) {
  progress(`building ${TARGET}`)
  const program = await buildMicro(TARGET)
  const times = Math.min(repeats, REPEATS_MAX)
  progress(`filling the queue, then asking it`)
  const got = await runMicro(program, [String(times)])
  return {
    rows: [
      { measure: 'ns per position', ours: got.positionNs, bar: { most: 100 } },
      { measure: 'ns per look', ours: got.lookNs },
      { measure: 'ns per enter', ours: [got.enterNs] },
      { measure: 'bytes per entry besides the name', ours: [got.bytesPerEntry], bar: { most: 64 } },
    ],
    notes: [
      `${got.entries.toLocaleString('en-US')} entries; random ones are asked for, each only when the answer ` +
        'before is there; the random numbers are in the time',
      "bytes: the growth of the process's memory by the entries, less their names",
    ],
  }
}
