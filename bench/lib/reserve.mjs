// Creates an event of a million seats in which all users are ACTIVE, and loads it with reservations
// of one seat by one strategy; also alternately with nginx.

import { writeFileSync } from 'node:fs'

import { audited, batchNote, lockNote, startAdmitone, stopWhenWritten } from './admitone.mjs'
import { dataPlace } from './machine.mjs'
import { inTurn } from './pairs.mjs'
import { stop, temporaryFolder } from './processes.mjs'
import { letIn, openRoom, ROOM_NAMES } from './room.mjs'
import { startNginx } from '../peers/nginx.mjs'

const PATH = '/reservations'
const CONNECTIONS = 256
const SEATS = 1_000_000
// Users send requests in rotation, so none reaches the limit of a thousand before the seats are sold.
const USERS = 10_000
// A prime, so that consecutive requests come from users whose names are not adjacent in any order.
const STEP = 1_009
const SECTION = { id: 'A', name: 'Floor A', capacity: SEATS, price: 150_000 }
// For scenarios that sell more.
const FURTHER_SECTION = { ...SECTION, id: 'B', name: 'Floor B' }

const MODES = {
  slot: 'slot',
  lock: 'lock',
  adaptive: 'adaptive',
  optimistic: 'seat',
  pessimistic: 'seat',
  'distributed-lock': 'seat',
}

// Creates the event and enters the users. Returns the file with their tokens, and one of the tokens.
export async function openSale(server, strategy, sections = [SECTION]) {
  await openRoom(server, {
    queue: { maxActive: 1_000_000, entryBatchSize: 100_000 },
    sections: sections.map((one) => ({ ...one, mode: MODES[strategy] })),
    holdSeconds: 86_400,
    maxPerUser: 1_000,
  })
  const file = `${temporaryFolder()}/tokens`
  const tokens = await letIn(server, USERS)
  writeFileSync(file, tokens.map((_, i) => tokens[(i * STEP) % USERS]).join('\n'))
  return { file, token: tokens[0] }
}

// One request for a seat; the answer as text.
export async function reserveOnce(server, body, token, { path = PATH, status = 201 } = {}) {
  const headers = { 'content-type': 'application/json', authorization: `Bearer ${token}` }
  const answer = await fetch(server.url + path, { method: 'POST', headers, body })
  const text = await answer.text()
  if (answer.status !== status) throw new Error(`${path} was answered with ${answer.status}: ${text}`)
  return text
}

// Checks that every request was answered with a hold (201), and that every answered hold is in the
// ledger. Requests under way when wrk ended may be in it.
function check({ strategy, metrics, inLedger, answered, runs }) {
  const outcomes = [...metrics].filter(([key]) => key.startsWith('admitone_reservation_outcomes_total{'))
  const isHeld = ([key]) => key.includes(`strategy="${strategy}"`) && key.includes('outcome="held"')
  const others = outcomes.filter((one) => !isHeld(one) && one[1] > 0)
  if (others.length > 0) throw new Error(`not only holds of ${strategy}: ${others.map((one) => one.join(' ')).join(', ')}`)
  const [, held] = outcomes.find(isHeld)
  if (inLedger !== held) throw new Error(`the ledger has ${inLedger} live reservations, ${held} were held`)
  const most = answered + runs * CONNECTIONS
  if (held < answered || held > most)
    throw new Error(`${held} were held; there should be ${answered} to ${most}`)
}

// How often requests were retried because another one was faster, as text; null: never.
function retriesNote(before, after, strategy) {
  const key = `admitone_reservation_retries_total{strategy="${strategy}"}`
  const retries = after.get(key) - before.get(key)
  return retries > 0 ? `${retries.toLocaleString('en-US')} times a request was tried again` : null
}

// Starts a server that sells by one strategy. Returns server and load, as for wrkAgainst (`load()` is
// called for each run; it sells the seats of `section`, A, or with twoSections also B; `pauseMs` is
// the average pause of a connection before each request); first, the answer to a reservation as text;
// and finish(), which stops the server when it has written everything, and checks that the `answered`
// holds of all `runs` are in the ledger. finish() returns { before, after, inLedger }: the metrics,
// and the number of live reservations.
export async function startSelling(strategy, { flags = [], twoSections = false } = {}) {
  const server = await startAdmitone(flags)
  const sections = twoSections ? [SECTION, FURTHER_SECTION] : [SECTION]
  const { file, token } = await openSale(server, strategy, sections)
  const body = (section) => JSON.stringify({ ...ROOM_NAMES, section, quantity: 1, strategy })
  const first = await reserveOnce(server, body(SECTION.id), token)
  const before = await server.metrics()
  return {
    server,
    first,
    load: ({ section = SECTION.id, pauseMs } = {}) => ({
      connections: CONNECTIONS,
      script: 'reserve.lua',
      scriptArgs: [PATH, body(section), file, ...(pauseMs === undefined ? [] : [String(pauseMs)])],
    }),
    finish: async ({ answered, runs }) => {
      const after = await stopWhenWritten(server)
      const inLedger = (await audited(server.data)).get('reservation has its seats')
      check({ strategy, metrics: after, inLedger, answered: answered + 1, runs })
      return { before, after, inLedger }
    },
  }
}

// The scenario for one strategy. Returns { row, notes }, as inTurn does, and `isDisk`: whether the
// measured changes were durable.
export async function measureReserve(strategy, given) {
  const progress = (text) => given.progress(`${strategy}: ${text}`)
  progress(`${USERS} enter`)
  const { server: ours, first, load, finish } = await startSelling(strategy)
  const nginx = await startNginx({ body: first, contentType: 'application/json' })
  const { row, notes, ...done } = await inTurn({ nginx, ours, load, waits: true }, { ...given, progress })
  await stop(nginx.process)
  progress('checking the ledger')
  const { before, after, inLedger } = await finish(done)

  const { isDisk, note } = dataPlace(ours.data)
  return {
    row,
    isDisk,
    notes: [
      batchNote(before, after),
      lockNote(before, after, strategy),
      retriesNote(before, after, strategy),
      `${inLedger.toLocaleString('en-US')} are held, none is missing, and the audit found nothing`,
      note,
      ...notes,
    ].filter((one) => one !== null),
  }
}
