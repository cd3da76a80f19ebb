const forgotten = 30_000; // ms without a reading

/** Meters measure counters by the readings of the last seconds. */
class Meters {
  #window;
  #readings = new Map(); // by key, the oldest first

  constructor(seconds) {
    this.#window = seconds * 1000;
  }

  /** add takes readings: pairs of a key and a counter. */
  add(readings, at = performance.now()) {
    for (const [key, counter] of readings) {
      const before = this.#readings.get(key) ?? [];
      const restarted = counter < before.at(-1)?.counter;
      const kept = restarted ? [] : before.filter((reading) => reading.at >= at - this.#window);
      this.#readings.set(key, [...kept, { counter, at }]);
    }
    for (const [key, readings] of this.#readings) if (readings.at(-1).at < at - forgotten) this.#readings.delete(key);
  }

  /** of is what came in a second, null before there are two readings. */
  of(key) {
    const [first, last] = [0, -1].map((i) => this.#readings.get(key)?.at(i));
    return last?.at > first?.at ? ((last.counter - first.counter) * 1000) / (last.at - first.at) : null;
  }

  /** total is the sum of the known ones, null if there is none. */
  total(keys) {
    const known = keys.map((key) => this.of(key)).filter((rate) => rate !== null);
    return known.length ? known.reduce((sum, rate) => sum + rate, 0) : null;
  }
}

const keyOf = (tag, node) => `${tag}\n${node}`;

/** TagRates measures how many IDs of a tag each generator hands out in a second. */
export class TagRates {
  #meters = new Meters(10);

  add(buffers) {
    this.#meters.add(buffers.map(({ tag, node, taken }) => [keyOf(tag, node), taken]));
  }

  /** of is what was measured, null before that is possible: the generator's own rate is that of whole segments. */
  of(tag, node) {
    return this.#meters.of(keyOf(tag, node));
  }

  /** total is the rate of a tag, null if no generator's is known. */
  total(tag, buffers) {
    return this.#meters.total(buffers.map(({ node }) => keyOf(tag, node)));
  }
}

// Refusals that are the caller's to avoid, or an operator's will. All others mean that the installation fails.
const wanted = new Set(["bad_request", "bad_tag", "unknown_tag", "exists", "conflict", "paused", "quota_exceeded", "batch_too_large"]);

/** Rates measures what each generator, and all together, do in a second. */
export class Rates {
  #meters = new Meters(5);
  #nodes = [];

  add(nodes) {
    this.#nodes = nodes.map(({ node }) => node);
    this.#meters.add(nodes.flatMap(({ node, counts: { ids, requests, errors, overloads = 0 } }) => {
      const refusals = Object.entries(errors ?? {});
      const sum = (of) => of.reduce((total, [, n]) => total + n, 0);
      const failed = sum(refusals.filter(([reason]) => !wanted.has(reason)));
      return Object.entries({ ids, requests, refused: sum(refusals), failed, overloads }).map(([what, n]) => [keyOf(what, node), n]);
    }));
  }

  /** of is the rate of what of a generator: ids, requests, refused, failed, which are refusals that no caller caused, or overloads. */
  of(node, what) {
    return this.#meters.of(keyOf(what, node));
  }

  /** overloaded reports whether more requests come than a generator can answer. What NATS refuses then, nothing counts. */
  overloaded = ({ node }) => this.of(node, "overloads") > 0;

  /** total is the rate of what, of all generators that have one. */
  total(what) {
    return this.#meters.total(this.#nodes.map((node) => keyOf(what, node)));
  }
}
