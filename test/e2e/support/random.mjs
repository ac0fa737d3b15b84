// Random numbers that can be repeated by their seed.

// A sequence of numbers in [0, 1) (mulberry32).
export function random(seed) {
  return () => {
    seed = (seed + 0x6d2b79f5) | 0;
    let t = Math.imul(seed ^ (seed >>> 15), 1 | seed);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}

// From 1 to `max`.
export const dice = (next, max) => 1 + Math.floor(next() * max);

export function shuffled(items, next) {
  const left = [...items];
  return items.map(() => left.splice(dice(next, left.length) - 1, 1)[0]);
}
