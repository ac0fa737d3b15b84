// Starts a node on a private Redis and PostgreSQL, and measures Redis alone with the same function
// calls. All processes share both cores with the load generator.

import { execFileSync, spawn } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { chmodSync, readFileSync, writeFileSync } from 'node:fs'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'

import { startAdmitone } from './admitone.mjs'
import { cores, cpuMicroseconds } from './machine.mjs'
import { atCleanUp, run, temporaryFolder } from './processes.mjs'

const SERVICES = fileURLToPath(new URL('../../scripts/services', import.meta.url))

// PostgreSQL uses fsync, as in production. Returns { REDIS_URL, POSTGRES_URL, … , folder }. `more`:
// further servers, such as kafka.
export function startServices(more = []) {
  const folder = temporaryFolder()
  chmodSync(folder, 0o755) // PostgreSQL's user must get in
  const place = `${folder}/services`
  execFileSync(SERVICES, ['start', 'redis', 'postgres', ...more, '--dir', place], { stdio: ['ignore', 'ignore', 'inherit'] })
  const stop = () => execFileSync(SERVICES, ['stop', place], { stdio: 'ignore' })
  atCleanUp(stop)
  const lines = readFileSync(`${place}/env`, 'utf8').trim().split('\n')
  return { ...Object.fromEntries(lines.map((line) => line.split(/=(.*)/s).slice(0, 2))), folder: place }
}

export function startNode(services, more = []) {
  const folder = temporaryFolder()
  const keys = ['secret', 'admin', 'pass'].map((name) => {
    const file = `${folder}/${name}.key`
    writeFileSync(file, randomBytes(32).toString('hex'), { mode: 0o600 })
    return file
  })
  const flags = ['--hot', services.REDIS_URL, '--ledger', services.POSTGRES_URL]
  flags.push('--secret-file', keys[0], '--admin-key-file', keys[1], '--pass-key-file', keys[2])
  return startAdmitone([...flags, ...more], { core: cores.both, adminKeyFile: keys[1] })
}

// Time on a core of the servers behind a node, by name.
export function servicesCpu(services) {
  const children = execFileSync('pgrep', ['-P', services.POSTGRES_PID], { encoding: 'utf8' }).trim().split('\n')
  const postgres = [services.POSTGRES_PID, ...children]
  return {
    redis: cpuMicroseconds(services.REDIS_PID),
    postgres: postgres.reduce((sum, pid) => sum + cpuMicroseconds(pid), 0),
    kafka: services.KAFKA_PID === undefined ? 0 : cpuMicroseconds(services.KAFKA_PID),
  }
}

// The function calls that Redis gets while `act` is done, as lists of words, by function's name.
export async function callsDuring(services, act) {
  const monitor = spawn('redis-cli', ['-p', services.REDIS_PORT, 'monitor'], { stdio: ['ignore', 'pipe', 'ignore'] })
  const calls = new Map()
  let ready
  const listening = new Promise((resolve) => (ready = resolve))
  createInterface({ input: monitor.stdout }).on('line', (line) => {
    if (line === 'OK') ready()
    const words = [...line.matchAll(/"((?:[^"\\]|\\.)*)"/g)].map(([, word]) => word)
    if (words[0] === 'FCALL') calls.set(words[1].replace(/^admitone_\d+_/, ''), words)
  })
  await listening
  await act()
  await new Promise((resolve) => setTimeout(resolve, 200))
  monitor.kill()
  return calls
}

// The same call on a copy of the event's keys, which no node knows: nodes would finish or undo pending
// operations on the original.
export function onCopy(services, words) {
  const copied = words.map((word) => word.replace(/^(\w+):\{[^}]*\}/, '$1:{BENCH:1}'))
  words.forEach((word, i) => {
    if (copied[i] !== word)
      execFileSync('redis-cli', ['-p', services.REDIS_PORT, 'copy', word, copied[i], 'replace'], { stdio: 'ignore' })
  })
  return copied
}

// Calls per second that redis-benchmark measures with these arguments over `connections` connections.
// An argument may contain __rand_int__, which is replaced by twelve random digits.
export async function redisBenchmark(services, words, { connections, seconds, perSecond }) {
  const requests = Math.max(1_000, Math.round(perSecond * seconds))
  const args = ['-p', services.REDIS_PORT, '-c', connections, '-n', requests, '-r', 999_999_999_999, '-q', ...words]
  const text = await run(cores.both, 'redis-benchmark', args.map(String))
  const found = [...text.matchAll(/([\d.]+) requests per second/g)].pop()
  if (!found || /error/i.test(text)) throw new Error(`redis-benchmark printed no result:\n${text.slice(-500)}`)
  return Number(found[1])
}
