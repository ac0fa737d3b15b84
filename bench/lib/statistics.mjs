// Median and spread, and the line of a table that compares two servers.

export function median(values) {
  const sorted = [...values].sort((a, b) => a - b)
  const middle = sorted.length >> 1
  return sorted.length % 2 === 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2
}

export function spread(values, show) {
  return `${show(Math.min(...values))}–${show(Math.max(...values))}`
}

// A number with as many digits as are useful: 8.31, 123,456.
export function short(value) {
  if (value >= 100) return Math.round(value).toLocaleString('en-US')
  return value.toFixed(2)
}

// The kinds of bar: ours, or with isRatio ours ÷ peer, is at most or at least so much.
const BARS = {
  most: { holds: (value, limit) => value <= limit, sign: '≤' },
  least: { holds: (value, limit) => value >= limit, sign: '≥' },
  ratioMost: { holds: (value, limit) => value <= limit, sign: '≤', isRatio: true },
  ratioLeast: { holds: (value, limit) => value >= limit, sign: '≥', isRatio: true },
}

const ratioText = (value) => value.toFixed(2)

function judge(bar, ours, ratios) {
  const [[kind, limit]] = Object.entries(bar)
  const { holds, sign, isRatio } = BARS[kind]
  return {
    text: `${sign} ${isRatio ? `${ratioText(limit)} ×` : short(limit)}`,
    holds: holds(median(isRatio ? ratios : ours), limit),
  }
}

// A row is what a scenario gives back:
//   measure   what was measured, with its unit
//   ours      one value per repeat
//   peer      the same for the server that we compare with, taken in the same repeats; optional
//   doubtful  optional: true when too little could be measured to judge
//   bar       optional: one of BARS, as in { ratioMost: 1.1 } or { most: 1024 }
// Ratios are taken within a repeat, so that what slows the machine for a while slows both.
export function comparison({ measure, ours, peer, bar, doubtful }) {
  const ratios = peer?.map((value, i) => ours[i] / value)
  const judged = bar && judge(bar, ours, ratios)
  return {
    measure,
    peer: peer ? short(median(peer)) : '',
    admitone: short(median(ours)),
    '(min–max)': spread(ours, short),
    ratio: ratios ? ratioText(median(ratios)) : '',
    'ratio (min–max)': ratios ? spread(ratios, ratioText) : '',
    bar: judged ? judged.text : '',
    verdict: !judged ? '' : doubtful ? 'unsure' : judged.holds ? 'PASS' : 'miss',
  }
}
