// What a position among ten million costs, in the queue itself: no server, no connection.

import { existsSync, realpathSync } from 'node:fs'
import { dirname } from 'node:path'

import { BINARY } from '../lib/admitone.mjs'
import { cores } from '../lib/machine.mjs'
import { run as runProgram } from '../lib/processes.mjs'

export const name = 'queue-position'
export const title = 'a position among 10,000,000 who wait, in two lanes'
export const order = 80

const TARGET = 'bench_queue_position'
const REPEATS_MAX = 5

// Beside the server, in the build that made it. Returns the program.
async function build() {
  const folder = dirname(realpathSync(BINARY))
  if (!existsSync(`${folder}/CMakeCache.txt`))
    throw new Error(`${folder} is no build folder: ${TARGET} can't be built there`)
  await runProgram(cores.both, 'cmake', ['--build', folder, '--target', TARGET])
  return `${folder}/${TARGET}`
}

export async function run({ repeats, progress }) {
  progress(`building ${TARGET}`)
  const program = await build()
  const times = Math.min(repeats, REPEATS_MAX)
  progress(`filling the queue, then asking it`)
  const got = JSON.parse(await runProgram(cores.server, program, [String(times)]))
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
