// Prints rows (objects with the same keys) as an aligned table; the keys are the column heads.

export function table(rows) {
  const heads = Object.keys(rows[0])
  const lines = [heads, ...rows.map((row) => heads.map((head) => String(row[head] ?? '')))]
  const widths = heads.map((_, i) => Math.max(...lines.map((line) => line[i].length)))
  const isText = heads.map((_, i) => lines.slice(1).some((line) => /^[A-Za-z]/.test(line[i])))
  return lines
    .map((line) =>
      line.map((cell, i) => (isText[i] ? cell.padEnd(widths[i]) : cell.padStart(widths[i]))),
    )
    .map((cells) => `  ${cells.join('  ')}`.trimEnd())
    .join('\n')
}
