// The cost of a request for a place's status: admitone's answer, the same bytes from nginx.

import { writeFileSync } from 'node:fs'

import { startAdmitone } from '../lib/admitone.mjs'
import { inTurn } from '../lib/pairs.mjs'
import { stop, temporaryFolder } from '../lib/processes.mjs'
import { enterMany, openRoom, ROOM } from '../lib/room.mjs'
import { startNginx } from '../peers/nginx.mjs'

export const name = 'queue-status'
export const title = 'GET /queue/{type}/{id}/status of 5,000 who wait, 64 connections, one core'
export const order = 40

const PATH = `${ROOM}/status`
const WAITING = 5_000
// A prime, so that neighbours in the file are no neighbours in the queue.
const STEP = 1_009

export async function run(given) {
  const ours = await startAdmitone()
  await openRoom(ours)
  given.progress(`${WAITING} enter`)
  const tokens = await enterMany(ours, WAITING)
  const file = `${temporaryFolder()}/tokens`
  writeFileSync(file, tokens.map((_, i) => tokens[(i * STEP) % WAITING]).join('\n'))

  const middle = tokens[WAITING / 2]
  const answer = await ours.get(PATH, { authorization: `Bearer ${middle}` })
  const body = await answer.text()
  const { position } = JSON.parse(body)
  if (position !== WAITING / 2 + 1) throw new Error(`the position is ${position}, not ${WAITING / 2 + 1}`)
  const nginx = await startNginx({ body, contentType: answer.headers.get('content-type') })
  const load = () => ({ script: 'queue-status.lua', scriptArgs: [PATH, file] })
  const { row, notes } = await inTurn({ nginx, ours, load }, given)
  await stop(ours.process)
  await stop(nginx.process)

  return {
    rows: [
      row('CPU µs per request', (r) => r.cpuPerRequest, { ratioMost: 1.1 }),
      row('requests/s', (r) => r.perSecond),
      row('latency p99, ms', (r) => r.p99Ms),
    ],
    notes: [`a body of ${Buffer.byteLength(body)} bytes; each request with another's token`, ...notes],
  }
}
