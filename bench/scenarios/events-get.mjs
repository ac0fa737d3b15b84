// What a request costs: an event of one section from admitone, the same bytes from nginx.

import { EVENT, startAdmitone } from '../lib/admitone.mjs'
import { stop } from '../lib/processes.mjs'
import { median } from '../lib/statistics.mjs'
import { wrkAgainst } from '../lib/wrk.mjs'
import { startNginx } from '../peers/nginx.mjs'

export const name = 'events-get'
export const title = 'GET /events/{type}/{id} of one section, 64 connections, one core'
export const order = 10

const PATH = '/events/CONCERT/1'
const WARM_UP_SECONDS = 1
// A server that gets its core for less of the time is not under the load that we compare: other
// work has the machine. Such a repeat is made again, whatever it measured, for both servers.
const BUSY_MIN = 0.7

export async function run({ repeats, seconds, progress }) {
  const ours = await startAdmitone()
  await ours.admin('PUT', PATH, EVENT)
  const answer = await ours.get(PATH)
  const body = await answer.text()
  const nginx = await startNginx({ body, contentType: answer.headers.get('content-type') })

  const servers = [
    { name: 'nginx', server: nginx, runs: [] },
    { name: 'admitone', server: ours, runs: [] },
  ]
  for (const { name: which, server } of servers) {
    progress(`warm-up, ${which}`)
    await wrkAgainst(server, server.url + PATH, { seconds: WARM_UP_SECONDS })
  }
  let last = ''
  let crowdedOut = 0
  while (servers[0].runs.length < repeats && crowdedOut < repeats) {
    const pair = []
    for (const { name: which, server } of servers) {
      progress(`${servers[0].runs.length + 1} of ${repeats}, ${which}${last}`)
      const got = await wrkAgainst(server, server.url + PATH, { seconds })
      pair.push(got)
      last = `; ${which} took ${got.cpuPerRequest.toFixed(2)} µs per request`
    }
    if (pair.every(({ busy }) => busy >= BUSY_MIN)) pair.forEach((got, i) => servers[i].runs.push(got))
    else {
      crowdedOut++
      last = '; the last repeat does not count: the servers had too little of their core'
    }
  }
  await stop(ours.process)
  await stop(nginx.process)

  const [theirRuns, ourRuns] = servers.map(({ runs }) => runs)
  if (ourRuns.length === 0)
    throw new Error(`other work has the machine: in no repeat did both servers have ${BUSY_MIN * 100} % of a core`)
  const row = (measure, pick, bar) => ({
    measure,
    ours: ourRuns.map(pick),
    peer: theirRuns.map(pick),
    bar,
    doubtful: ourRuns.length < repeats,
  })
  const busy = (runs) => `${Math.round(median(runs.map((r) => r.busy)) * 100)} %`
  return {
    rows: [
      row('CPU µs per request', (r) => r.cpuPerRequest, { ratio: 1.1 }),
      row('requests/s', (r) => r.perSecond),
      row('latency p99, ms', (r) => r.p99Ms),
    ],
    notes: [
      `a body of ${Buffer.byteLength(body)} bytes; ${ourRuns.length} × ${seconds} s each, in turn; ` +
        `on its core nginx was ${busy(theirRuns)} of the time, admitone ${busy(ourRuns)}`,
      ...(crowdedOut > 0
        ? [`${crowdedOut} further repeats do not count: a server had its core for less than ${BUSY_MIN * 100} % of them`]
        : []),
    ],
  }
}
