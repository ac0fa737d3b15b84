// Builds and runs the programs of bench/micro, which time one module without a server.

import { existsSync, realpathSync } from 'node:fs'
import { dirname } from 'node:path'

import { BINARY } from './admitone.mjs'
import { cores } from './machine.mjs'
import { run } from './processes.mjs'

// Builds one beside the server, in the build that made it. Gives back the program.
export async function buildMicro(target) {
  const folder = dirname(realpathSync(BINARY))
  if (!existsSync(`${folder}/CMakeCache.txt`))
    throw new Error(`${folder} is no build folder: ${target} can't be built there`)
  await run(cores.both, 'cmake', ['--build', folder, '--target', target])
  return `${folder}/${target}`
}

// Runs a program and returns its results.
export async function runMicro(program, args = []) {
  return JSON.parse(await run(cores.server, program, args))
}
