const forgotten = 30_000; // ms without a reading

/** Rates measures what generators do in a second, by the readings of their counters in the last seconds. */
export class Rates {
  #window;
  #readings = new Map(); // by generator and counter, the oldest first

  constructor(seconds) {
    this.#window = seconds * 1000;
  }

  /** add takes readings: a generator, the name of a counter, and its value. */
  add(readings, at = performance.now()) {
    for (const [node, name, value] of readings) {
      const key = `${node}\n${name}`;
      const before = this.#readings.get(key) ?? [];
      const restarted = value < before.at(-1)?.value;
      const kept = restarted ? [] : before.filter((reading) => reading.at >= at - this.#window);
      this.#readings.set(key, [...kept, { value, at }]);
    }
    for (const [key, readings] of this.#readings) if (readings.at(-1).at < at - forgotten) this.#readings.delete(key);
  }

  /** of is what came in a second, null before there are two readings. */
  of(node, name) {
    const readings = this.#readings.get(`${node}\n${name}`);
    const [first, last] = [readings?.at(0), readings?.at(-1)];
    return last?.at > first?.at ? ((last.value - first.value) * 1000) / (last.at - first.at) : null;
  }

  /** total is the sum over generators of those that are known, null if there is none. */
  total(nodes, name) {
    const known = nodes.map(({ node }) => this.of(node, name)).filter((rate) => rate !== null);
    return known.length ? known.reduce((sum, rate) => sum + rate, 0) : null;
  }

  /** overloaded reports whether more requests come than a generator can answer. Nothing counts what NATS refuses. */
  overloaded = ({ node }) => this.of(node, "overloads") > 0;
}

// Refusals that are the caller's to avoid, or an operator's will. All others mean that the installation fails.
const wanted = new Set([
  "bad_request", "bad_tag", "unknown_tag", "exists", "conflict", "paused", "quota_exceeded", "batch_too_large"]);

/** counters are the readings of a generator. */
export function counters({ node, counts: { ids, requests, errors, overloads = 0 } }) {
  let refused = 0, failed = 0;
  for (const [reason, n] of Object.entries(errors ?? {})) {
    refused += n;
    if (!wanted.has(reason)) failed += n;
  }
  return Object.entries({ ids, requests, refused, failed, overloads }).map(([name, n]) => [node, name, n]);
}
