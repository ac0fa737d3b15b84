// Loads nginx and admitone alternately with the same requests, several times.

import { median } from './statistics.mjs'
import { wrkAgainst } from './wrk.mjs'

const WARM_UP_SECONDS = 1
// A server that gets its core for less of the time is not under the load that we compare: other
// work has the machine. Such a repeat is made again, whatever it measured, for both servers.
const BUSY_MIN = 0.7

const share = ({ busy }) => `${Math.round(busy * 100)} %`

// Loads `path` of both servers. `load()` returns wrk's options and is called for each run. `waits`:
// admitone waits for its disk, so it may be idle. Returns row(measure, pick, bar), a row of the table,
// where `pick` selects a value of wrkAgainst's result; notes, on the repeats and on how busy the
// servers were; answered and runs, the number of admitone's answers and of runs, including the warm-up
// and discarded repeats.
export async function inTurn(
  { nginx, ours, path = '', load = () => ({}), waits = false },
  { repeats, seconds, progress },
) {
  const servers = [
    { name: 'nginx', server: nginx, busyMin: BUSY_MIN, runs: [] },
    { name: 'admitone', server: ours, busyMin: waits ? 0 : BUSY_MIN, runs: [] },
  ]
  let answered = 0
  let runs = 0
  const runOn = async ({ server }, forSeconds) => {
    const got = await wrkAgainst(server, server.url + path, { ...load(), seconds: forSeconds })
    if (server === ours) {
      answered += got.requests
      runs++
    }
    return got
  }

  for (const one of servers) {
    progress(`warm-up, ${one.name}`)
    await runOn(one, WARM_UP_SECONDS)
  }
  let last = ''
  let crowdedOut = 0
  while (servers[0].runs.length < repeats && crowdedOut < repeats) {
    const pair = []
    for (const one of servers) {
      progress(`${servers[0].runs.length + 1} of ${repeats}, ${one.name}${last}`)
      const got = await runOn(one, seconds)
      pair.push(got)
      last = `; ${one.name} took ${got.cpuPerRequest.toFixed(2)} µs per request`
    }
    if (pair.every(({ busy }, i) => busy >= servers[i].busyMin)) {
      pair.forEach((got, i) => servers[i].runs.push(got))
    } else {
      crowdedOut++
      last = `; the last repeat does not count: on their core ${pair.map(share).join(' and ')} of the time`
    }
  }

  const [theirRuns, ourRuns] = servers.map((one) => one.runs)
  if (ourRuns.length === 0)
    throw new Error(`other work has the machine: no repeat had the servers on their core for ${BUSY_MIN * 100} % of it`)
  const busy = (of) => share({ busy: median(of.map((r) => r.busy)) })
  return {
    answered,
    runs,
    row: (measure, pick, bar) => ({
      measure,
      ours: ourRuns.map(pick),
      peer: theirRuns.map(pick),
      bar,
      doubtful: ourRuns.length < repeats,
    }),
    notes: [
      `${ourRuns.length} × ${seconds} s each, in turn; ` +
        `on its core nginx was ${busy(theirRuns)} of the time, admitone ${busy(ourRuns)}`,
      ...(crowdedOut > 0
        ? [`${crowdedOut} further repeats do not count: a server had its core for less than ${BUSY_MIN * 100} % of them`]
        : []),
    ],
  }
}
