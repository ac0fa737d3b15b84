// The cost of a GET: an event with one section from admitone, the same bytes from nginx.

import { EVENT, startAdmitone } from '../lib/admitone.mjs'
import { inTurn } from '../lib/pairs.mjs'
import { stop } from '../lib/processes.mjs'
import { startNginx } from '../peers/nginx.mjs'

export const name = 'events-get'
export const title = 'GET /events/{type}/{id} of one section, 64 connections, one core'
export const order = 10

const PATH = '/events/CONCERT/1'

export async function run(given) {
  const ours = await startAdmitone()
  await ours.admin('PUT', PATH, EVENT)
  const answer = await ours.get(PATH)
  const body = await answer.text()
  const nginx = await startNginx({ body, contentType: answer.headers.get('content-type') })
  const { row, notes } = await inTurn({ nginx, ours, path: PATH }, given)
  await stop(ours.process)
  await stop(nginx.process)

  return {
    rows: [
      row('CPU µs per request', (r) => r.cpuPerRequest, { ratioMost: 1.1 }),
      row('requests/s', (r) => r.perSecond),
      row('latency p99, ms', (r) => r.p99Ms),
    ],
    notes: [`a body of ${Buffer.byteLength(body)} bytes`, ...notes],
  }
}
