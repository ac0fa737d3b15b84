// The cost of a static file: the style sheet of the pages, compressed, from admitone; from nginx the
// same bytes, which it has compressed on its disk (gzip_static).

import { startAdmitone } from '../lib/admitone.mjs'
import { inTurn } from '../lib/pairs.mjs'
import { stop } from '../lib/processes.mjs'
import { startNginx } from '../peers/nginx.mjs'

export const name = 'page'
export const title = 'GET /assets/app.css, compressed, 64 connections, one core'
export const order = 15

const PATH = '/assets/app.css'

// fetch() decompresses; the bytes that were sent are those of Content-Length.
async function lengthOf(server) {
  const answer = await fetch(server.url + PATH, { method: 'HEAD', headers: { 'accept-encoding': 'gzip' } })
  if (answer.headers.get('content-encoding') !== 'gzip') throw new Error('the answer is not compressed')
  return Number(answer.headers.get('content-length'))
}

export async function run(given) {
  const ours = await startAdmitone()
  const body = await (await ours.get(PATH)).text()
  const nginx = await startNginx({ body, contentType: 'text/css', asFile: true })
  const [ourBytes, theirBytes] = [await lengthOf(ours), await lengthOf(nginx)]
  if (Math.abs(ourBytes - theirBytes) > 64) throw new Error(`${ourBytes} bytes against ${theirBytes}`)
  const load = () => ({ headers: ['Accept-Encoding: gzip'] })
  const { row, notes } = await inTurn({ nginx, ours, path: PATH, load }, given)
  await stop(ours.process)
  await stop(nginx.process)

  return {
    rows: [
      row('CPU µs per request', (r) => r.cpuPerRequest, { ratioMost: 1.0 }),
      row('requests/s', (r) => r.perSecond),
      row('latency p99, ms', (r) => r.p99Ms),
    ],
    notes: [`a body of ${ourBytes} bytes`, ...notes],
  }
}
