// The cost of a claim in memory, in a section that is nearly full: in the seat map alone, and in the
// hot store, which also checks the user's place and limit. No server, no disk.

import { buildMicro, runMicro } from '../lib/micro.mjs'

export const name = 'seats-claim'
export const title = 'a claim of 1 and of 4 adjacent seats in a section of 1,000,000, 99 % full'
export const order = 90

const REPEATS_MAX = 3
const PLACES = [
  {
    target: 'bench_seat_map',
    place: 'the seat map',
    claims: (rows) => rows.filter((row) => row.section === '99 % full' && row.call === 'claim_any'),
  },
  {
    target: 'bench_seats_claim',
    place: 'the hot store',
    claims: (rows) => rows.filter((row) => row.full_percent === 99 && row.call === 'claim'),
  },
]

export async function run({ repeats, progress }) {
  const times = Math.min(repeats, REPEATS_MAX)
  const rows = []
  for (const { target, place, claims } of PLACES) {
    progress(`building ${target}`)
    const program = await buildMicro(target)
    const runs = []
    for (let i = 1; i <= times; i++) {
      progress(`${place}, ${i} of ${times}`)
      runs.push(claims((await runMicro(program)).rows))
    }
    for (const seats of [1, 4]) {
      const values = (field) => runs.map((got) => got.find((row) => row.seats === seats)[field] / 1000)
      const what = `${seats === 1 ? 'a seat' : `${seats} seats`} of ${place}, µs`
      rows.push({ measure: `claim ${what}, mean`, ours: values('mean_ns'), bar: { most: 2 } })
      rows.push({ measure: `claim ${what}, p99`, ours: values('p99_ns') })
    }
  }
  return { rows, notes: ['every call is timed on its own; the clock is in the time'] }
}
