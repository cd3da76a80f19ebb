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

const totalOf = (errors) => Object.values(errors ?? {}).reduce((sum, n) => sum + n, 0);

/** Rates measures what each generator, and all together, do in a second. */
export class Rates {
  #meters = new Map();

  add(nodes) {
    const known = this.#meters;
    this.#meters = new Map();
    for (const { node, counts } of nodes) {
      const meters = known.get(node) ?? { ids: new Meter(5), requests: new Meter(5), refused: new Meter(5) };
      meters.ids.add(counts.ids);
      meters.requests.add(counts.requests);
      meters.refused.add(totalOf(counts.errors));
      this.#meters.set(node, meters);
    }
  }

  /** of is the rate of what (ids, requests or refused) of a generator. */
  of(node, what) {
    return this.#meters.get(node)?.[what].rate ?? null;
  }

  /** total is the rate of what, of all generators that have one. */
  total(what) {
    const known = [...this.#meters.keys()].map((node) => this.of(node, what)).filter((rate) => rate !== null);
    return known.length ? known.reduce((sum, rate) => sum + rate, 0) : null;
  }
}
