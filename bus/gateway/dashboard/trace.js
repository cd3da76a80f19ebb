import { byID, facts, setText } from "./dom.js";
import { id, range } from "./number.js";
import { ask } from "./poll.js";
import { lines, Table } from "./table.js";
import { local } from "./time.js";

const patience = 15_000; // ms; longer than the generator's own limit, whose error says more

function fillRange(cell, { first, last }) {
  cell.classList.toggle("long", (last ?? "").length > 9);
  lines(cell, { text: first ? range(first, last) : "–" });
}

/** Trace is the form that says who claimed an ID. */
export class Trace {
  #tag = byID("trace-tag");
  #id = byID("trace-id");
  #note = byID("trace-note");
  #request;
  #claims = new Table(byID("trace-claims"), [
    { name: "Generator", fill: (cell, c) => lines(cell, { text: c.node, class: "node" }) },
    { name: "Range", fill: fillRange },
    { name: "Claimed at", fill: (cell, c) => lines(cell, { text: local(Date.parse(c.time)) }) },
    { name: "Cause", fill: (cell, c) => lines(cell, { text: c.cause || "not recorded" }) },
    { name: "Source", fill: (cell, c) => lines(cell, { text: c.record ? "record" : "event" }) },
  ], (c) => JSON.stringify(c), (row, c) => { row.dataset.node = c.node; });

  constructor() {
    byID("trace").noValidate = true; // what is wrong is said below
    byID("trace").addEventListener("submit", (event) => {
      event.preventDefault();
      this.#trace(this.#tag.value.trim(), this.#id.value.trim());
    });
  }

  async #trace(tag, number) {
    this.#request?.abort();
    const request = new AbortController();
    this.#request = request;
    this.#show("", "Asking …", [], []);
    const valid = /^[1-9]\d{0,18}$/.test(number);
    this.#id.setAttribute("aria-invalid", String(!valid));
    if (!valid) return this.#show("bad", "An ID is a number of up to 19 digits.", [], []);
    try {
      const t = await ask(`dashboard/trace?${new URLSearchParams(tag ? { tag, id: number } : { snowflake: number })}`, request.signal, patience);
      if (request.signal.aborted) return;
      const bad = t.outcome === "impossible" || t.claims.length > 1;
      this.#show(bad ? "bad" : "good", `${tag || "Snowflake"} ${id(t.id)}: ${t.message}`, t.claims, [
        ["Events since", t.since && local(Date.parse(t.since)), "of this tag or worker, in the stream"],
        ["Claimed below", t.end && id(t.end)],
        ["Worker", t.decoded && String(t.decoded.worker)],
        ["Time of the snowflake", t.decoded && local(t.decoded.unix_ms)],
        ["The worker’s time is claimed until", t.reserved_until && local(Date.parse(t.reserved_until))],
      ]);
    } catch (error) {
      if (!request.signal.aborted) this.#show("bad", error.message, [], []);
    }
  }

  #show(state, text, claims, about) {
    this.#note.className = state === "bad" ? "error" : "";
    this.#note.dataset.state = state;
    setText(this.#note, text);
    this.#claims.show(claims);
    facts(byID("trace-facts"), ...about);
  }
}
