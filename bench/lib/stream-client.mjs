// node stream-client.mjs PORT FILE: opens an event stream for each path in FILE, prints "ready" when
// each has had its first event, and reads until its input ends. It is a separate program, so that
// its open files and memory are counted separately.

import { readFileSync } from 'node:fs'
import { connect } from 'node:net'

const AT_ONCE = 128

const port = Number(process.argv[2])
const paths = readFileSync(process.argv[3], 'utf8').split('\n')
let isReady = false

function fail(why) {
  console.error(`stream-client: ${why}`)
  process.exit(1)
}

// Resolves with the first event.
function open(path) {
  return new Promise((resolve) => {
    let text = ''
    const request = `GET ${path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: text/event-stream\r\n\r\n`
    const socket = connect(port, '127.0.0.1', () => socket.write(request))
    socket.on('error', (error) => fail(error.message))
    // Later it is the end of a stream whose user has been let in.
    socket.on('end', () => isReady || fail('the server closed a stream'))
    socket.on('data', function first(chunk) {
      text += chunk.toString('latin1')
      const end = text.indexOf('\r\n\r\n')
      if (end < 0 || text.indexOf('\n\n', end + 4) < 0) return
      if (!text.startsWith('HTTP/1.1 200 ') || !text.includes('"status":"WAITING"')) fail(`got ${text}`)
      text = ''
      socket.off('data', first)
      socket.resume()
      resolve()
    })
  })
}

let next = 0
async function openSome() {
  while (next < paths.length) await open(paths[next++])
}
await Promise.all(Array.from({ length: AT_ONCE }, openSome))
isReady = true
console.log('ready')
process.stdin.on('end', () => process.exit(0)).resume()
