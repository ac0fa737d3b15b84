// The cost of a waiting user's stream: memory while the queue is idle, CPU time per event when it
// moves.

import { writeFileSync } from 'node:fs'
import { setTimeout as pause } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'

import { startAdmitone } from '../lib/admitone.mjs'
import { cores, cpuMicroseconds, memoryBytes, openFilesMax } from '../lib/machine.mjs'
import { start, stop, temporaryFolder, waitFor } from '../lib/processes.mjs'
import { changeRules, enterMany, openRoom, ROOM } from '../lib/room.mjs'

export const name = 'queue-streams'
export const title = '15,000 streams of people who wait, idle and then moving'
export const order = 60

const WANTED = 15_000
const FILES_FOR_OTHERS = 500
const OPEN_MS_MAX = 120_000
// Users far from the head get an event every ten seconds only.
const MOVE_SECONDS_MIN = 12
const MOVING = { maxActive: 1_000_000, entryBatchSize: 20, entryIntervalSeconds: 1 }
const CLIENT = fileURLToPath(new URL('../lib/stream-client.mjs', import.meta.url))

async function openStreams(server, tokens) {
  const file = `${temporaryFolder()}/paths`
  writeFileSync(file, tokens.map((token) => `${ROOM}/subscribe/${token}`).join('\n'))
  const client = start(cores.load, process.execPath, [CLIENT, new URL(server.url).port, file], {
    stdio: ['pipe', 'pipe', 'inherit'],
  })
  let ready = false
  client.child.stdout.on('data', () => (ready = true))
  await waitFor(client, 'its streams are open', () => ready, OPEN_MS_MAX)
  return client
}

// The changes since the start: { events, dropped, admitted, cpu in µs, seconds }.
async function watch(server, seconds) {
  const reading = async () => {
    const metrics = await server.metrics()
    return {
      events: metrics.get('admitone_sse_events_total'),
      dropped: metrics.get('admitone_sse_dropped_total'),
      admitted: metrics.get('admitone_queue_admissions_total'),
      cpu: cpuMicroseconds(server.pid),
      seconds: performance.now() / 1000,
    }
  }
  const before = await reading()
  await pause(seconds * 1000)
  const after = await reading()
  return Object.fromEntries(Object.keys(after).map((key) => [key, after[key] - before[key]]))
}

export async function run({ seconds, progress }) {
  const count = Math.min(WANTED, Math.floor(openFilesMax() / 1.1) - FILES_FOR_OTHERS)
  const moveSeconds = Math.max(seconds, MOVE_SECONDS_MIN)

  const server = await startAdmitone()
  await openRoom(server)
  progress(`${count} enter`)
  const tokens = await enterMany(server, count)
  const before = memoryBytes(server.pid).own
  progress(`opening ${count} streams`)
  const client = await openStreams(server, tokens)
  const bytes = (memoryBytes(server.pid).own - before) / count
  progress('idle')
  const idle = await watch(server, seconds)

  progress(`the queue moves for ${moveSeconds} s`)
  await changeRules(server, MOVING)
  const moving = await watch(server, moveSeconds)
  await stop(client)
  await stop(server.process)
  if (moving.dropped > 0) throw new Error(`${moving.dropped} streams were cut because the client lagged`)
  if (moving.events === 0) throw new Error('no events came')

  return {
    rows: [
      { measure: 'bytes per idle stream', ours: [bytes], bar: { most: 1024 } },
      { measure: 'CPU µs per delivered event', ours: [moving.cpu / moving.events] },
      { measure: 'events/s', ours: [moving.events / moving.seconds] },
      { measure: 'CPU, % of a core, idle', ours: [idle.cpu / idle.seconds / 1e4] },
      { measure: 'CPU, % of a core, moving', ours: [moving.cpu / moving.seconds / 1e4] },
    ],
    notes: [
      'bytes: the growth of its anonymous memory, since all had entered; what the kernel holds for ' +
        'a socket is not in it',
      `moving: ${MOVING.entryBatchSize} are let in per second (${moving.admitted} in all, and ` +
        'their streams end), all others move up; its CPU time is that of everything that it does meanwhile',
      ...(count < WANTED ? [`only ${count}: the limit on open files is ${openFilesMax()}`] : []),
    ],
  }
}
