// Creates a waiting room in which one user is ACTIVE and all others wait, and users for it.

import { Agent, request } from 'node:http'
import { json } from 'node:stream/consumers'

import { EVENT } from './admitone.mjs'

const [TYPE, ID] = ['CONCERT', '1']
const NAME = `${TYPE}/${ID}`
const AT_ONCE = 32

export const ROOM = `/queue/${NAME}`
// How the body of a request names it.
export const ROOM_NAMES = { eventType: TYPE, eventId: ID }

// Creates the event and takes its only place in front. The gate is open and ticks, as it does when
// people wait. `queue` changes its rules, `event` other things.
export async function openRoom(server, { queue = {}, ...event } = {}) {
  await server.admin('PUT', `/events/${NAME}`, {
    ...EVENT,
    state: 'OPEN',
    queue: {
      maxWaiting: 10_000_000,
      maxActive: 1,
      entryBatchSize: 1,
      entryIntervalSeconds: 3600,
      activeTtlSeconds: 86_400,
      graceSeconds: 86_400,
      ...queue,
    },
    ...event,
  })
  if (event.state && event.state !== 'OPEN') return
  const first = await enter(server, 'first')
  if (first.status !== 'ACTIVE') throw new Error(`the first to come is ${first.status}`)
}

// Enters the queue; returns the user's place.
export function enter(server, userId, agent) {
  return new Promise((resolve, reject) => {
    const options = { method: 'POST', agent, headers: { 'content-type': 'application/json' } }
    request(`${server.url}${ROOM}/enter`, options, (answer) => {
      if (answer.statusCode < 300) json(answer).then(resolve, reject)
      else reject(new Error(`enter was answered with ${answer.statusCode}`))
    })
      .on('error', reject)
      .end(JSON.stringify({ userId }))
  })
}

// Enters `count` more users; returns their places, in no order. The connections are closed afterwards.
async function enterAll(server, count, status, from = 1) {
  const places = []
  const agent = new Agent({ keepAlive: true })
  let next = from
  const enterSome = async () => {
    while (next < from + count) {
      const place = await enter(server, `user${next++}`, agent)
      if (place.status !== status) throw new Error(`who should be ${status} is ${place.status}`)
      places.push(place)
    }
  }
  await Promise.all(Array.from({ length: AT_ONCE }, enterSome))
  agent.destroy()
  return places
}

// Makes `count` users wait, in an empty queue; returns their tokens in order.
export async function enterMany(server, count, { from = 1 } = {}) {
  const tokens = Array(count)
  for (const place of await enterAll(server, count, 'WAITING', from)) tokens[place.position - 1] = place.entryToken
  return tokens
}

// Enters `count` users who are admitted at once, as far as the rules allow; returns their tokens.
export async function letIn(server, count) {
  return (await enterAll(server, count, 'ACTIVE')).map((place) => place.entryToken)
}

// { waiting, active } of a reading of the metrics.
export function inRoom(metrics) {
  const of = (gauge) => metrics.get(`admitone_queue_${gauge}{event="${NAME}"}`)
  return { waiting: of('waiting'), active: of('active') }
}

export const changeRules = (server, rules) => server.admin('PATCH', ROOM, rules)
