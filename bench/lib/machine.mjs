// What the machine gives us: two cores, open files, and what the kernel knows of a process.

import { readdirSync, readFileSync } from 'node:fs'

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

// Servers run on one, whatever loads them on the other.
export const cores = { server: allowed[0], load: allowed[1] ?? allowed[0] }

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

// Bytes of memory: `own` is what the process made itself (heap, stacks, tables), `resident` all
// that is in memory for it, `share` its proportional part of that. Private_Clean would count file
// pages too, which turn from private to shared when anybody else loads the same library.
export function memoryBytes(pid) {
  const text = readFileSync(`/proc/${pid}/smaps_rollup`, 'utf8')
  const field = (name) => Number(new RegExp(`^${name}:\\s+(\\d+) kB$`, 'm').exec(text)[1]) * 1024
  return { own: field('Anonymous'), resident: field('Rss'), share: field('Pss') }
}
