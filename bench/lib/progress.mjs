// Prints the current step: on a terminal one line that is rewritten in place, else a line each.

const inPlace = process.stdout.isTTY
const startedAt = Date.now()
let shown = false

export function progress(text) {
  const line = `${((Date.now() - startedAt) / 1000).toFixed(0).padStart(4)} s  ${text}`
  if (!inPlace) return console.log(line)
  process.stdout.write(`\r\x1b[2K${line.slice(0, (process.stdout.columns || 80) - 1)}`)
  shown = true
}

export function progressEnd() {
  if (shown) process.stdout.write('\r\x1b[2K')
  shown = false
}
