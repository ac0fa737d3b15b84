#!/usr/bin/env node
// Runs the scenarios of bench/scenarios one after the other and compares them with their bars.
// `--help` shows the options; README.md describes how to add a scenario.

import { readdir } from 'node:fs/promises'
import { parseArgs } from 'node:util'

import { cores } from './lib/machine.mjs'
import { cleanUp, onInterrupt, pinSelf } from './lib/processes.mjs'
import { progress, progressEnd } from './lib/progress.mjs'
import { table } from './lib/table.mjs'
import { comparison } from './lib/statistics.mjs'

const HELP = `usage: node bench/run.mjs [--only NAME]... [--repeats N] [--seconds N] [--strict]

  --only NAME    only this scenario; may be given again
  --repeats N    how often each measurement is repeated (7)
  --seconds N    how long one measurement takes (3)
  --strict       exit with 1 when a bar is missed, or too little could be measured to say
  --list         names of the scenarios
`

function options() {
  const { values } = parseArgs({
    options: {
      only: { type: 'string', multiple: true },
      repeats: { type: 'string', default: '7' },
      seconds: { type: 'string', default: '3' },
      strict: { type: 'boolean', default: false },
      list: { type: 'boolean', default: false },
      help: { type: 'boolean', default: false },
    },
  })
  for (const name of ['repeats', 'seconds']) {
    values[name] = Number(values[name])
    if (!Number.isInteger(values[name]) || values[name] < 1 || values[name] > 600)
      throw new Error(`--${name} must be a whole number from 1 to 600`)
  }
  return values
}

async function scenarios(only) {
  const folder = new URL('scenarios/', import.meta.url)
  const files = (await readdir(folder)).filter((file) => file.endsWith('.mjs')).sort()
  const all = await Promise.all(files.map((file) => import(new URL(file, folder))))
  all.sort((a, b) => a.order - b.order)
  for (const name of only ?? [])
    if (!all.some((scenario) => scenario.name === name))
      throw new Error(`no scenario '${name}'; there are: ${all.map((s) => s.name).join(', ')}`)
  return only ? all.filter((scenario) => only.includes(scenario.name)) : all
}

async function main() {
  const given = options()
  if (given.help) return void process.stdout.write(HELP)
  const chosen = await scenarios(given.only)
  if (given.list) return void console.log(chosen.map((s) => `${s.name}: ${s.title}`).join('\n'))

  pinSelf(cores.load)
  if (cores.load === cores.server)
    console.log('only one core: server and load share it, so the numbers mean little')
  const summary = []
  for (const scenario of chosen) {
    const report = (text) => progress(`${scenario.name}: ${text}`)
    const { rows, notes } = await scenario.run({ ...given, progress: report })
    progressEnd()
    console.log(`\n${scenario.name}: ${scenario.title}`)
    console.log(table(rows.map(comparison)))
    for (const note of notes ?? []) console.log(`  ${note}`)
    console.log()
    for (const row of rows) summary.push({ scenario: scenario.name, ...comparison(row) })
  }
  if (chosen.length > 1) console.log(`summary\n${table(summary)}`)
  if (given.strict && summary.some((row) => row.verdict && row.verdict !== 'PASS')) process.exitCode = 1
}

let interrupted = false
onInterrupt((signal) => {
  interrupted = true
  progressEnd()
  console.error(`stopped by ${signal}`)
})
try {
  await main()
} catch (error) {
  progressEnd()
  if (!interrupted) console.error(`bench: ${error.message}`)
  process.exitCode = 2
} finally {
  await cleanUp()
}
