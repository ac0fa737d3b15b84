// Median and spread, and the line of a table that compares two servers.

export function median(values) {
  const sorted = [...values].sort((a, b) => a - b)
  const middle = sorted.length >> 1
  return sorted.length % 2 === 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2
}

export function spread(values, show) {
  return `${show(Math.min(...values))}–${show(Math.max(...values))}`
}

// As many digits as help: 8.31, 123,456.
export function short(value) {
  if (value >= 100) return Math.round(value).toLocaleString('en-US')
  return value.toFixed(2)
}

// A row is what a scenario gives back:
//   measure   what was measured, with its unit
//   ours      one value per repeat
//   peer      the same for the server that we compare with, taken in the same repeats; optional
//   doubtful  optional: true when too little could be measured to judge
//   bar       optional: { ratio: 1.1 }, ours ÷ peer at most that, or { most: 1024 }, ours at most
// Ratios are taken within a repeat, so that what slows the machine for a while slows both.
export function comparison({ measure, ours, peer, bar, doubtful }) {
  const ratios = peer?.map((value, i) => ours[i] / value)
  const judged = bar && (bar.ratio !== undefined ? median(ratios) <= bar.ratio : median(ours) <= bar.most)
  const ratio = (value) => value.toFixed(2)
  return {
    measure,
    nginx: peer ? short(median(peer)) : '',
    admitone: short(median(ours)),
    '(min–max)': spread(ours, short),
    ratio: ratios ? ratio(median(ratios)) : '',
    'ratio (min–max)': ratios ? spread(ratios, ratio) : '',
    bar: bar ? `≤ ${bar.ratio !== undefined ? `${bar.ratio.toFixed(2)} ×` : short(bar.most)}` : '',
    verdict: !bar ? '' : doubtful ? 'unsure' : judged ? 'PASS' : 'miss',
  }
}
