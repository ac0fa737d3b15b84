// How long a server takes to restart with a million waiting entries.

import { existsSync } from 'node:fs'

import { startAdmitone } from '../lib/admitone.mjs'
import { cores, dataPlace, memoryBytes } from '../lib/machine.mjs'
import { run as runProgram, stop } from '../lib/processes.mjs'
import { enter, openRoom } from '../lib/room.mjs'

export const name = 'queue-restart'
export const title = 'start with 1,000,000 waiting, one core'
export const order = 70

const WAITING = 1_000_000
const STARTS = 3
const SECONDS_MAX = 2

// user1, user2, … in order of entry.
const FILL = `
  INSERT INTO queue_entries(event_id, seq, user_id, lane, status, joined_at)
  WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ${WAITING})
  SELECT events.id, i, 'user' || i, 8, 'WAITING', unixepoch() * 1000 FROM n, events;`

async function fill(data) {
  const ledger = `${data}/admitone.db`
  if (!existsSync(ledger)) throw new Error(`${ledger} is not there`)
  await runProgram(cores.load, 'sqlite3', ['-bail', ledger, FILL])
}

export async function run({ progress }) {
  // Paused: no user is admitted, so positions do not change.
  const first = await startAdmitone()
  await openRoom(first, { state: 'PAUSED' })
  await stop(first.process)
  progress(`writing ${WAITING.toLocaleString('en-US')} entries into its ledger`)
  await fill(first.data)

  const starts = []
  for (let i = 1; i <= STARTS; i++) {
    progress(`start ${i} of ${STARTS}`)
    const startedAt = performance.now()
    const server = await startAdmitone([], { data: first.data })
    // A user who enters again gets the existing place.
    const wanted = Math.floor((WAITING * i) / (STARTS + 1))
    const place = await enter(server, `user${wanted}`)
    const answeredMs = performance.now() - startedAt
    if (place.position !== wanted || place.totalWaiting !== WAITING)
      throw new Error(`user${wanted} is told ${place.position} of ${place.totalWaiting}`)
    starts.push({
      listening: server.listeningMs / 1000,
      answered: answeredMs / 1000,
      bytes: memoryBytes(server.pid).own,
    })
    await stop(server.process)
  }

  const row = (measure, pick, bar) => ({ measure, ours: starts.map(pick), bar })
  return {
    rows: [
      row('seconds until it listens', (s) => s.listening, { most: SECONDS_MAX }),
      row('seconds until the first position', (s) => s.answered, { most: SECONDS_MAX }),
      row('MiB of its own memory then', (s) => s.bytes / 2 ** 20),
    ],
    notes: [
      'from when the process is started; the position is the right one; ' +
        "the ledger was written just before, so it is in the system's memory",
      dataPlace(first.data).note,
    ],
  }
}
