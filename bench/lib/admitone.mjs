// An admitone server of its own for a scenario: temporary data, free port, one worker.

import { existsSync, readFileSync } from 'node:fs'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'

import { cores } from './machine.mjs'
import { start, temporaryFolder, waitFor } from './processes.mjs'

const BINARY = process.env.ADMITONE ?? fileURLToPath(new URL('../../build/admitone', import.meta.url))

// Gives back { pid, url, data, adminKey, get, admin, metrics } besides what start() gives.
export async function startAdmitone(flags = []) {
  if (!existsSync(BINARY)) throw new Error(`${BINARY} is not there: make build`)
  const data = temporaryFolder()
  const standard = ['--listen', '127.0.0.1:0', '--data', data, '--workers', '1', '--log-level', 'info']
  const server = start(cores.server, BINARY, ['serve', ...standard, ...flags], {
    stdio: ['ignore', 'ignore', 'pipe'],
  })
  let address
  createInterface({ input: server.child.stderr }).on('line', (line) => {
    address ??= /msg=listening .*?\baddr=(\S+)/.exec(line)?.[1]
    if (/level=(warn|error)/.test(line)) console.error(`admitone: ${line}`)
  })
  const url = `http://${await waitFor(server, 'it listens', () => address)}`
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
    get: (path) => request('GET', path),
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
export function histogramBetween(before, after, name) {
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
