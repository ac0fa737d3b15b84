// node idle-client.mjs PORT COUNT PATH: opens COUNT connections, makes one GET on each, prints
// "ready" and keeps them open until its input ends. It is a separate program, so that its open files
// and memory are counted separately.

import { connect } from 'node:net'

const AT_ONCE = 128

const [port, count, path] = [Number(process.argv[2]), Number(process.argv[3]), process.argv[4]]
const request = `GET ${path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n`
const sockets = []

function fail(why) {
  console.error(`idle-client: ${why}`)
  process.exit(1)
}

// Resolves when the answer is whole.
function open() {
  return new Promise((resolve) => {
    let text = ''
    const socket = connect(port, '127.0.0.1', () => socket.write(request))
    socket.on('error', (error) => fail(error.message))
    socket.on('end', () => fail('the server closed a connection'))
    socket.on('data', (chunk) => {
      text += chunk.toString('latin1')
      const end = text.indexOf('\r\n\r\n')
      if (end < 0) return
      const length = Number(/^content-length: (\d+)\r$/im.exec(text)?.[1])
      if (!text.startsWith('HTTP/1.1 200 ') || Number.isNaN(length)) fail(`got ${text}`)
      if (text.length === end + 4 + length) resolve()
    })
    sockets.push(socket)
  })
}

let left = count
async function openSome() {
  while (left-- > 0) await open()
}
await Promise.all(Array.from({ length: AT_ONCE }, openSome))
console.log('ready')
process.stdin.on('end', () => process.exit(0)).resume()
