// Runs wrk on the core for load generators, and parses its output.

import { fileURLToPath } from 'node:url'

import { cores, cpuMicroseconds } from './machine.mjs'
import { run } from './processes.mjs'

const MS = { us: 0.001, ms: 1, s: 1000, m: 60_000 }

function milliseconds(text, percentile) {
  // Behind a unit of one letter wrk leaves a space.
  const found = new RegExp(`^\\s+${percentile}%\\s+([\\d.]+)(us|ms|s|m) ?$`, 'm').exec(text)
  return found ? Number(found[1]) * MS[found[2]] : NaN
}

function parse(text) {
  const done = /(\d+) requests in ([\d.]+)(us|ms|s|m),/.exec(text)
  if (!done) throw new Error(`wrk printed no result:\n${text}`)
  const bad = /Non-2xx or 3xx responses: (\d+)/.exec(text)
  const socket = /Socket errors: (.*)/.exec(text)
  if (bad) throw new Error(`wrk got ${bad[1]} answers other than 2xx`)
  if (socket) throw new Error(`wrk had socket errors: ${socket[1]}`)
  return {
    requests: Number(done[1]),
    seconds: (Number(done[2]) * MS[done[3]]) / 1000,
    p50Ms: milliseconds(text, 50),
    p99Ms: milliseconds(text, 99),
  }
}

// `script` is a file of bench/wrk, `scriptArgs` what its init() gets; `headers` are lines. An answer that is no 2xx or
// 3xx and a broken connection are errors: a number measured from failures is worth nothing.
// Gives back { requests, seconds, perSecond, p50Ms, p99Ms }.
export async function wrk(url, { connections = 64, seconds, script, scriptArgs = [], headers = [] }) {
  const args = ['-t1', `-c${connections}`, `-d${seconds}s`, '--latency']
  if (script) args.push('-s', fileURLToPath(new URL(`../wrk/${script}`, import.meta.url)))
  for (const line of headers) args.push('-H', line)
  args.push(url)
  if (scriptArgs.length > 0) args.push('--', ...scriptArgs)
  const result = parse(await run(cores.load, 'wrk', args))
  return { ...result, perSecond: result.requests / result.seconds }
}

// The same, with the server's time on its core: cpuPerRequest in microseconds, and `busy`, the
// part of the time that it was on its core.
export async function wrkAgainst(server, url, options) {
  const before = cpuMicroseconds(server.pid)
  const result = await wrk(url, options)
  const used = cpuMicroseconds(server.pid) - before
  return {
    ...result,
    cpuPerRequest: used / result.requests,
    busy: used / 1e6 / result.seconds,
  }
}
