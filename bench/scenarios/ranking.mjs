// The cost of a board of a hundred thousand members, in the ranking itself: no server, no connection.

import { buildMicro, runMicro } from '../lib/micro.mjs'

export const name = 'ranking'
export const title = 'the top 10 of 100,000 members, and scores that grow by one'
export const order = 95

const TARGET = 'bench_ranking'
const REPEATS_MAX = 9

const perSecond = (ns) => 1e9 / ns

export async function run({ repeats, progress }) {
  progress(`building ${TARGET}`)
  const program = await buildMicro(TARGET)
  const times = Math.min(repeats, REPEATS_MAX)
  progress('filling the board, then changing it')
  const got = await runMicro(program, [String(times)])
  return {
    rows: [
      { measure: 'µs per top 10', ours: got.topNs.map((ns) => ns / 1000), bar: { most: 2 } },
      { measure: 'sets/s, many equal scores', ours: got.setNs.map(perSecond), bar: { least: 1e6 } },
      { measure: 'sets/s, hardly an equal score', ours: got.setSpreadNs.map(perSecond) },
      { measure: 'ns per rank', ours: got.rankNs },
      { measure: 'bytes per member', ours: [got.bytesPerMember], bar: { most: 100 } },
    ],
    notes: [
      `${got.members.toLocaleString('en-US')} members; a set adds one to the score of a random one, found by ` +
        'its key; every top is timed on its own, a hundred sets after the last; the clock and the random ' +
        'numbers are in the time; of sets and ranks it is the time on the core',
      "bytes: the growth of the process's memory when all have entered in order, which fills it worst",
    ],
  }
}
