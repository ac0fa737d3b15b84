// Reads properties of the machine and of processes: cores, open files, memory, file systems.

import { readdirSync, readFileSync, realpathSync } from 'node:fs'

// "0-2,5" → [0, 1, 2, 5]
function coreList(text) {
  return text.split(',').flatMap((range) => {
    const [first, last = first] = range.split('-').map(Number)
    return Array.from({ length: last - first + 1 }, (_, i) => first + i)
  })
}

function allowedCores() {
  const status = readFileSync('/proc/self/status', 'utf8')
  return coreList(/^Cpus_allowed_list:\s*(\S+)$/m.exec(status)[1])
}

const allowed = allowedCores()

// Servers run on one core, load generators on the other; `both` is for a server that may use both.
const [first, second = first] = allowed
export const cores = { server: first, load: second, both: `${first},${second}` }

// The type of the file system of a folder: ext4, tmpfs, …
function fileSystem(folder) {
  const path = `${realpathSync(folder)}/`
  const mounts = readFileSync('/proc/self/mounts', 'utf8').trim().split('\n')
  let best = { at: '', type: 'unknown' }
  for (const mount of mounts) {
    const [, at, type] = mount.split(' ')
    if (path.startsWith(at.endsWith('/') ? at : `${at}/`) && at.length >= best.at.length) best = { at, type }
  }
  return best.type
}

// Where a server's data is: { isDisk, note }. Where fsync costs nothing, results say nothing about
// durable changes.
export function dataPlace(folder) {
  const type = fileSystem(folder)
  const isDisk = type !== 'tmpfs' && type !== 'ramfs'
  const advice = isDisk ? '' : ', where fsync costs nothing: set TMPDIR to a folder on a disk'
  return { isDisk, note: `the data was in ${folder}, on ${type}${advice}` }
}

export function openFilesMax() {
  const limits = readFileSync('/proc/self/limits', 'utf8')
  const hard = /^Max open files\s+\S+\s+(\S+)/m.exec(limits)[1]
  return hard === 'unlimited' ? Infinity : Number(hard)
}

// Time on a core, user and kernel, of all threads that live. From schedstat, which counts in
// nanoseconds; the same total as utime + stime in /proc/PID/stat, which counts in 10 ms.
export function cpuMicroseconds(pid) {
  let nanoseconds = 0n
  for (const thread of readdirSync(`/proc/${pid}/task`))
    nanoseconds += BigInt(readFileSync(`/proc/${pid}/task/${thread}/schedstat`, 'utf8').split(' ')[0])
  return Number(nanoseconds) / 1000
}

// Bytes of memory: `own` is private memory (heap, stacks, tables), `resident` all pages in memory,
// `share` the proportional part of those. Private_Clean would also count file pages, which change from
// private to shared when another process loads the same library.
export function memoryBytes(pid) {
  const text = readFileSync(`/proc/${pid}/smaps_rollup`, 'utf8')
  const field = (name) => Number(new RegExp(`^${name}:\\s+(\\d+) kB$`, 'm').exec(text)[1]) * 1024
  return { own: field('Anonymous'), resident: field('Rss'), share: field('Pss') }
}
