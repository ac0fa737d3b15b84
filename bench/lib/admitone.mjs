// Starts an admitone server for a scenario: temporary data, a free port, one worker.

import { existsSync, readFileSync } from 'node:fs'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'

import { cores } from './machine.mjs'
import { run, start, stop, temporaryFolder, waitFor } from './processes.mjs'

const START_MS_MAX = 60_000

export const BINARY = process.env.ADMITONE ?? fileURLToPath(new URL('../../build/admitone', import.meta.url))

// Uses a new data folder unless `data` names one that another server has left; runs on the core for
// servers unless another one is given. Returns { pid, url, data, adminKey, listeningMs, get, admin,
// metrics } and the results of start(); listeningMs is how long it took to listen.
export async function startAdmitone(
  flags = [],
  { data = temporaryFolder(), core = cores.server, adminKeyFile = `${data}/admin.key` } = {},
) {
  if (!existsSync(BINARY)) throw new Error(`${BINARY} is not there: make build`)
  const startedAt = performance.now()
  const standard = ['--listen', '127.0.0.1:0', '--data', data, '--workers', '1', '--log-level', 'info']
  const server = start(core, BINARY, ['serve', ...standard, ...flags], {
    stdio: ['ignore', 'ignore', 'pipe'],
  })
  let address, listeningMs
  createInterface({ input: server.child.stderr }).on('line', (line) => {
    address ??= /msg=listening .*?\baddr=(\S+)/.exec(line)?.[1]
    if (address) listeningMs ??= performance.now() - startedAt
    if (/level=(warn|error)/.test(line)) console.error(`admitone: ${line}`)
  })
  const url = `http://${await waitFor(server, 'it listens', () => address, START_MS_MAX)}`
  const adminKey = readFileSync(adminKeyFile, 'utf8').trim()

  const request = async (method, path, { headers = {}, body } = {}) => {
    const answer = await fetch(url + path, { method, headers, body })
    if (!answer.ok) throw new Error(`${method} ${path}: ${answer.status} ${await answer.text()}`)
    return answer
  }
  return {
    ...server,
    process: server,
    url,
    data,
    adminKey,
    listeningMs,
    get: (path, headers) => request('GET', path, { headers }),
    admin: (method, path, json) =>
      request(method, `/admin${path}`, {
        headers: { authorization: `Bearer ${adminKey}`, 'content-type': 'application/json' },
        body: JSON.stringify(json),
      }),
    metrics: async () => parseMetrics(await (await request('GET', '/metrics')).text()),
  }
}

// The event that scenarios use where one event of one section is enough.
export const EVENT = {
  title: 'Winter tour',
  startsAt: '2026-12-25T10:00:00Z',
  sections: [{ id: 'A', name: 'Floor A', capacity: 100, price: 150000 }],
}

// Stops the server when all that it has been asked for is written and answered. Gives back its last
// metrics.
export async function stopWhenWritten(server) {
  const metrics = await waitFor(server.process, 'what is under way is written', async () => {
    const now = await server.metrics()
    const idle = now.get('admitone_ledger_queue_depth') === 0 && now.get('admitone_connections') === 1
    return idle ? now : null
  })
  await stop(server.process)
  return metrics
}

// Checks the ledger in a data folder; a violation is an error. Gives back a Map of each invariant's
// name → how many it was checked of.
export async function audited(data) {
  const report = await run(cores.load, BINARY, ['audit', '--data', data])
  const lines = report.matchAll(/^ +ok +(.*?) +(\d+) checked$/gm)
  return new Map(Array.from(lines, ([, name, count]) => [name, Number(count)]))
}

// Prometheus text → Map of "name{labels}" → number.
function parseMetrics(text) {
  const lines = text.split('\n').filter((line) => line && !line.startsWith('#'))
  return new Map(
    lines.map((line) => {
      const cut = line.lastIndexOf(' ')
      return [line.slice(0, cut), Number(line.slice(cut + 1))]
    }),
  )
}

// Quantiles of a histogram between two readings: the upper bounds of their buckets, in its unit.
export function quantiles(before, after, name, shares) {
  const change = (key) => (after.get(key) ?? 0) - (before.get(key) ?? 0)
  const count = change(`${name}_count`)
  const buckets = [...after.keys()]
    .filter((key) => key.startsWith(`${name}_bucket{le=`))
    .map((key) => ({ upTo: Number(/le="(.*?)"/.exec(key)[1].replace('+Inf', 'Infinity')), below: change(key) }))
    .sort((a, b) => a.upTo - b.upTo)
  return shares.map((share) => buckets.find(({ below }) => below >= share * count).upTo)
}

// The difference of a histogram between two readings: its mean, and the bucket (above, upTo] of its
// median. `labels`, written as in the metrics, select one of several histograms. Null if it counted
// nothing or does not exist.
function histogramBetween(before, after, name, labels = '') {
  const change = (key) => (after.get(key) ?? 0) - (before.get(key) ?? 0)
  const of = (part) => change(`${name}_${part}${labels && `{${labels}}`}`)
  const count = of('count')
  if (count === 0) return null
  const buckets = [...after.keys()]
    .filter((key) => key.startsWith(`${name}_bucket{${labels && `${labels},`}le=`))
    .map((key) => ({ upTo: Number(/le="(.*?)"/.exec(key)[1].replace('+Inf', 'Infinity')), below: change(key) }))
    .sort((a, b) => a.upTo - b.upTo)
  const at = buckets.findIndex((bucket) => bucket.below * 2 >= count)
  return {
    count,
    mean: of('sum') / count,
    median: { above: at > 0 ? buckets[at - 1].upTo : -1, upTo: buckets[at].upTo },
  }
}

function batchSizes({ median: { above, upTo } }) {
  return upTo === above + 1 ? String(upTo) : `${above + 1}–${upTo}`
}

// A note on how the ledger grouped its writes into batches between two readings of the metrics.
export function batchNote(before, after) {
  const batch = histogramBetween(before, after, 'admitone_ledger_batch_records')
  const commit = histogramBetween(before, after, 'admitone_ledger_commit_seconds')
  return (
    `${batch.count} batches: median of ${batchSizes(batch)} records, mean ${batch.mean.toFixed(1)}; ` +
    `a commit took ${(commit.mean * 1000).toFixed(2)} ms on average`
  )
}

// How long requests of a strategy waited for their lock between two readings, as a note; null when
// it locks nothing.
export function lockNote(before, after, strategy) {
  const wait = histogramBetween(before, after, 'admitone_lock_wait_seconds', `strategy="${strategy}"`)
  if (wait === null) return null
  const ms = (seconds) => Number((Math.max(seconds, 0) * 1000).toPrecision(3))
  const { above, upTo } = wait.median
  return `${wait.count} waits for a lock: mean ${ms(wait.mean)} ms, median ${ms(above)}–${ms(upTo)} ms`
}
