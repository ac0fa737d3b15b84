// Starts programs pinned to a core. cleanUp() ends them and removes the temporary folders, also when
// the benchmark is interrupted.

import { execFileSync, spawn } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

const STOP_MS_MAX = 10_000

const running = new Set()
const folders = new Set()

// A started program: { pid, name, child, ended }, `ended` resolves to its exit status. taskset
// becomes the program it starts, so the pid is the program's.
export function start(core, command, args, { stdio = ['ignore', 'pipe', 'pipe'] } = {}) {
  const child = spawn('taskset', ['-c', String(core), command, ...args], { stdio })
  const name = command.split('/').pop()
  const ended = new Promise((resolve, reject) => {
    child.once('error', (error) => reject(new Error(`${name} can't be started: ${error.message}`)))
    child.once('exit', (code, signal) => {
      running.delete(process)
      resolve(signal ?? code)
    })
  })
  ended.catch(() => {})
  const process = { pid: child.pid, name, child, ended }
  running.add(process)
  return process
}

// Runs a program to its end; returns its output, or throws an error with its error output.
export async function run(core, command, args) {
  const program = start(core, command, args)
  const output = collect(program.child.stdout)
  const errors = collect(program.child.stderr)
  const status = await program.ended
  if (status !== 0) throw new Error(`${program.name} ended with ${status}: ${await errors}`)
  return output
}

async function collect(stream) {
  let text = ''
  for await (const chunk of stream.setEncoding('utf8')) text += chunk
  return text
}

export async function stop(program) {
  if (!running.has(program)) return
  program.child.kill('SIGTERM')
  const timer = setTimeout(() => program.child.kill('SIGKILL'), STOP_MS_MAX)
  await program.ended.catch(() => {})
  clearTimeout(timer)
}

export function temporaryFolder() {
  const folder = mkdtempSync(join(tmpdir(), 'admitone-bench-'))
  folders.add(folder)
  return folder
}

// Something else to end, after the programs.
const others = []
export const atCleanUp = (end) => others.push(end)

export async function cleanUp() {
  await Promise.all([...running].map(stop))
  for (const end of others.splice(0)) end()
  for (const folder of folders) rmSync(folder, { recursive: true, force: true })
  folders.clear()
}

export function pinSelf(core) {
  execFileSync('taskset', ['-a', '-c', '-p', String(core), String(process.pid)], { stdio: 'ignore' })
}

export function onInterrupt(say) {
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'])
    process.once(signal, async () => {
      say(signal)
      await cleanUp()
      process.exit(130)
    })
}

// Calls `attempt` until it gives something, for as long as the program runs and there is time.
export async function waitFor(program, what, attempt, deadlineMs = 10_000) {
  const deadline = Date.now() + deadlineMs
  for (;;) {
    const got = await attempt()
    if (got) return got
    const status = await Promise.race([program.ended, pause(20)])
    if (status !== undefined) throw new Error(`${program.name} ended with ${status} before ${what}`)
    if (Date.now() > deadline) throw new Error(`${program.name}: no ${what} within ${deadlineMs} ms`)
  }
}

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms))
