/** Meter measures the rate of a counter from its readings over the last seconds. */
export class Meter {
  #window;
  #readings = []; // oldest first

  constructor(seconds = 10) {
    this.#window = seconds * 1000;
  }

  add(counter, at = performance.now()) {
    const last = this.#readings.at(-1);
    if (last && counter < last.counter) this.#readings = []; // the generator has started anew
    this.#readings.push({ counter, at });
    while (this.#readings[0].at < at - this.#window) this.#readings.shift();
  }

  /** rate is what came in a second, null before there are two readings. */
  get rate() {
    const first = this.#readings[0];
    const last = this.#readings.at(-1);
    if (!first || last.at === first.at) return null;
    return ((last.counter - first.counter) * 1000) / (last.at - first.at);
  }
}

const steady = 0.2; // by which part a rate may differ before a list is ordered anew
const forgotten = 30_000; // ms without a reading

/** TagRates measures how many IDs of a tag each generator hands out in a second. */
export class TagRates {
  #meters = new Map(); // by tag and generator
  #ranks = new Map(); // by tag

  /** add takes readings. */
  add(buffers, at = performance.now()) {
    for (const { tag, node, taken } of buffers) {
      const key = keyOf(tag, node);
      const entry = this.#meters.get(key) ?? { meter: new Meter() };
      this.#meters.set(key, entry);
      entry.meter.add(taken, at);
      entry.at = at;
    }
    for (const [key, entry] of this.#meters) if (entry.at < at - forgotten) this.#meters.delete(key);
  }

  /** of is what was measured, null before that is possible: the generator's own rate is that of whole segments. */
  of = (tag, node) => this.#meters.get(keyOf(tag, node))?.meter.rate ?? null;

  /** total is the rate of a tag, null if no generator's is known. */
  total(tag, buffers) {
    const known = buffers.map(({ node }) => this.of(tag, node)).filter((rate) => rate !== null);
    return known.length ? known.reduce((sum, rate) => sum + rate, 0) : null;
  }

  /**
   * order sorts tags: those that get no new IDs stay first, as they come, and the others follow by their rates. Small
   * changes of a rate move nothing, so that people can read the list.
   */
  order(items) {
    const before = this.#ranks;
    this.#ranks = new Map();
    for (const { tag, buffers } of items) {
      const failing = buffers.some(({ state }) => state === "failing");
      const rate = failing ? Infinity : this.total(tag, buffers) ?? buffers.reduce((sum, buffer) => sum + (buffer.rate ?? 0), 0);
      const rank = before.get(tag);
      this.#ranks.set(tag, Math.abs(rate - rank) <= steady * rank ? rank : rate);
    }
    const rankOf = ({ tag }) => this.#ranks.get(tag);
    return items.toSorted((a, b) => (rankOf(a) === rankOf(b) ? 0 : rankOf(b) - rankOf(a)));
  }
}

const keyOf = (tag, node) => `${tag}\n${node}`;

// Refusals that are the caller's to avoid, or an operator's will. All others mean that the installation fails.
const wanted = new Set(["bad_request", "bad_tag", "unknown_tag", "exists", "conflict", "paused", "quota_exceeded", "batch_too_large"]);

const failuresOf = (errors) => Object.entries(errors ?? {}).reduce((sum, [reason, n]) => sum + (wanted.has(reason) ? 0 : n), 0);

const totalOf = (errors) => Object.values(errors ?? {}).reduce((sum, n) => sum + n, 0);

/** Rates measures what each generator, and all together, do in a second. */
export class Rates {
  #meters = new Map();

  add(nodes) {
    const known = this.#meters;
    this.#meters = new Map();
    for (const { node, counts } of nodes) {
      const meters = known.get(node) ?? { ids: new Meter(5), requests: new Meter(5), refused: new Meter(5), failed: new Meter(5), overloads: new Meter(5) };
      meters.ids.add(counts.ids);
      meters.requests.add(counts.requests);
      meters.refused.add(totalOf(counts.errors));
      meters.failed.add(failuresOf(counts.errors));
      meters.overloads.add(counts.overloads ?? 0);
      this.#meters.set(node, meters);
    }
  }

  /** of is the rate of what of a generator: ids, requests, refused, failed, which are refusals that no caller caused, or overloads. */
  of(node, what) {
    return this.#meters.get(node)?.[what].rate ?? null;
  }

  /** overloaded reports whether more requests come than a generator can answer. What NATS refuses then, nothing counts. */
  overloaded = ({ node }) => this.of(node, "overloads") > 0;

  /** total is the rate of what, of all generators that have one. */
  total(what) {
    const known = [...this.#meters.keys()].map((node) => this.of(node, what)).filter((rate) => rate !== null);
    return known.length ? known.reduce((sum, rate) => sum + rate, 0) : null;
  }
}
