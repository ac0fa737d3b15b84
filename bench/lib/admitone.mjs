// An admitone server of its own for a scenario: temporary data, free port, one worker.

import { existsSync, readFileSync } from 'node:fs'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'

import { cores } from './machine.mjs'
import { run, start, temporaryFolder, waitFor } from './processes.mjs'

const START_MS_MAX = 60_000

export const BINARY = process.env.ADMITONE ?? fileURLToPath(new URL('../../build/admitone', import.meta.url))

// On a data folder of its own, unless it is given one that another server has left; on the core
// for servers, unless told otherwise. Gives back { pid, url, data, adminKey, listeningMs, get, admin,
// metrics } besides what start() gives; listeningMs is how long it took to listen.
export async function startAdmitone(flags = [], { data = temporaryFolder(), core = cores.server } = {}) {
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
  const adminKey = readFileSync(`${data}/admin.key`, 'utf8').trim()

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

// Checks the ledger in a data folder, and gives back how many entries in it are live.
export async function auditedEntries(data) {
  const report = await run(cores.load, BINARY, ['audit', '--data', data])
  return Number(/one live entry per user +(\d+) checked/.exec(report)[1])
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

// What a histogram counted between two readings: its mean, and the bucket (above, upTo] where
// its median lies.
function histogramBetween(before, after, name) {
  const change = (key) => after.get(key) - (before.get(key) ?? 0)
  const count = change(`${name}_count`)
  const buckets = [...after.keys()]
    .filter((key) => key.startsWith(`${name}_bucket{`))
    .map((key) => ({ upTo: Number(/le="(.*?)"/.exec(key)[1].replace('+Inf', 'Infinity')), below: change(key) }))
    .sort((a, b) => a.upTo - b.upTo)
  const at = buckets.findIndex((bucket) => bucket.below * 2 >= count)
  return {
    count,
    mean: change(`${name}_sum`) / count,
    median: { above: at > 0 ? buckets[at - 1].upTo : -1, upTo: buckets[at].upTo },
  }
}

function batchSizes({ median: { above, upTo } }) {
  return upTo === above + 1 ? String(upTo) : `${above + 1}–${upTo}`
}

// How the ledger grouped what it wrote between two readings of the metrics, as a note.
export function batchNote(before, after) {
  const batch = histogramBetween(before, after, 'admitone_ledger_batch_records')
  const commit = histogramBetween(before, after, 'admitone_ledger_commit_seconds')
  return (
    `${batch.count} batches: median of ${batchSizes(batch)} records, mean ${batch.mean.toFixed(1)}; ` +
    `a commit took ${(commit.mean * 1000).toFixed(2)} ms on average`
  )
}
