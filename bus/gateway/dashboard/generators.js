import { byID, element, Keyed } from "./dom.js";
import { count, rate } from "./number.js";
import { duration, local, now, relative } from "./time.js";

const badClock = 5_000; // ms off the others' clocks

/** waits reports whether requests wait that should not. Requests for strict tags always wait, for a write. */
export const waits = ({ counts, busiest }) => counts.waiting > 0 && !busiest.some(({ order }) => order === "strict");

/**
 * Generators is the table of generators. On small screens its rows become
 * cards (style.css), which takes the roles of a table away in some browsers:
 * hence they are given here.
 */
export class Generators {
  #rows;
  #serving; // the generator that serves this page

  constructor(rates) {
    const each = (what) => (cell, { node, counts }) =>
      lines(cell, { text: rate(rates.of(node, what)), title: `${count(counts[what])} in all` });
    const columns = { // each fills its cell of a row; the first one names the row
      Generator: (cell, n) => lines(cell,
        { text: n.node, class: "node" },
        n.node === this.#serving && { text: "serves this page", class: "chip" },
        { text: n.address, class: "quiet" },
        { text: n.version, class: "quiet" }),
      State: (cell, n) => fillState(cell, n, rates.overloaded(n)),
      "IDs/s": each("ids"),
      "Answered/s": each("requests"),
      "Refused/s": (cell, n) => fillRefused(cell, n, rates),
      Waiting: (cell, n) => lines(cell, { text: count(n.counts.waiting), class: waits(n) ? "warn" : "" }),
      Tags: (cell, n) => lines(cell,
        { text: count(n.counts.tags), title: "in memory" },
        n.counts.failing > 0 && { text: `${count(n.counts.failing)} failing`, class: "bad" }),
      Worker: fillWorker,
      Clock: fillClock,
      "Runs for": fillStarted,
      Events: (cell, n) => lines(cell,
        { text: `${count(n.counts.events_queued)} queued` },
        n.counts.events_dropped > 0 && { text: `${count(n.counts.events_dropped)} dropped`, class: "bad" }),
    };
    const names = Object.keys(columns).map((name) => element("th", { scope: "col", role: "columnheader" }, name));
    const body = element("tbody", { role: "rowgroup" });
    byID("generators").append(
      element("thead", { role: "rowgroup" }, element("tr", { role: "row" }, ...names)),
      body);
    this.#rows = new Keyed(body, ({ node }) => node, () => new Row(columns));
  }

  overview({ node, nodes, lost }) {
    this.#serving = node;
    this.#rows.show([...lost, ...nodes]); // what needs an operator comes first
  }
}

class Row {
  #fills;
  #cells;

  constructor(columns) {
    this.#fills = Object.values(columns);
    this.#cells = Object.keys(columns).map((name, i) => i === 0
      ? element("th", { scope: "row", role: "rowheader" })
      : element("td", { role: "cell", "data-name": name }));
    this.element = element("tr", { role: "row" }, ...this.#cells);
  }

  update(generator) {
    this.element.dataset.node = generator.node;
    const lost = generator.silent_ms !== undefined;
    for (const [i, cell] of this.#cells.entries()) {
      if (lost) fillLost(cell, generator, i);
      else this.#fills[i](cell, generator);
    }
  }
}

/** lines shows parts of a cell one below the other, each of them { text, class, title }, and only what is there. */
function lines(cell, ...parts) {
  const wanted = parts.filter((part) => part?.text);
  while (cell.childElementCount > wanted.length) cell.lastElementChild.remove();
  while (cell.childElementCount < wanted.length) cell.append(element("div"));
  for (const [i, part] of wanted.entries()) {
    const line = cell.children[i];
    if (line.textContent !== part.text) line.textContent = part.text;
    line.className = part.class ?? "";
    line.title = part.title ?? "";
  }
}

/** fillLost fills column i of a generator that the others do not hear: only its name and state are known. */
function fillLost(cell, { node, silent_ms: silent, until_ms: until }, i) {
  cell.classList.toggle("long", i === 1);
  if (i === 0) return lines(cell, { text: node, class: "node" });
  if (i > 1) return lines(cell); // nothing is known
  lines(cell,
    { text: "lost", class: "state warn" },
    { text: `last heard ${duration(silent / 1000, 1)} ago`, class: "quiet" },
    { text: `shown until ${local(until)}`, class: "quiet" });
}

function fillState(cell, { ready, missing, reasons }, overloaded) {
  cell.classList.toggle("long", !ready); // it has reasons to give
  const overload = overloaded && { text: "overloaded", class: "state warn",
    title: "more requests come than it can answer: NATS gives the rest to other generators, or refuses them" };
  if (ready) return lines(cell, overload || { text: "ready", class: "state good" });
  const why = (missing ?? []).map((what) => ({ text: [what, reasons?.[what]].filter(Boolean).join(": "),
    class: "quiet reason", title: reasons?.[what] }));
  lines(cell, { text: `not ready: ${(missing ?? []).join(", ")}`, class: "state bad" }, ...why, overload);
}

function fillWorker(cell, { worker, reserved_until_ms: until }) {
  if (worker == null) return lines(cell, { text: "none", class: "quiet" });
  const state = until > now() ? "reserved, ends" : "ended";
  lines(cell, { text: String(worker) },
    until && { text: `${state} ${relative(until)}`, class: "quiet", title: local(until) });
}

function fillClock(cell, { clock }) {
  const offset = clock?.offset_ms;
  if (offset == null) return lines(cell, { text: "–", title: "no other generator to compare it with" });
  const sign = offset > 0 ? "+" : offset < 0 ? "−" : "";
  const wrong = Math.abs(offset) > badClock;
  lines(cell,
    { text: `${sign}${count(Math.abs(offset))} ms`, title: "off the median of the other generators' clocks" },
    wrong && { text: offset > 0 ? "ahead of the others" : "behind the others", class: "bad" });
}

function fillStarted(cell, { started }) {
  if (!started) return lines(cell, { text: "–" });
  const at = Date.parse(started);
  lines(cell, { text: duration(Math.max(0, now() - at) / 1000), title: `since ${local(at)}` });
}

function fillRefused(cell, { node, counts }, rates) {
  const refused = Object.entries(counts.errors ?? {}).filter(([, n]) => n > 0).sort(([, a], [, b]) => b - a);
  const now = rates.of(node, "refused");
  cell.classList.toggle("long", refused.length > 1);
  lines(cell,
    { text: rate(now), class: rates.of(node, "failed") > 0 ? "bad" : now > 0 ? "warn" : "" },
    { text: refused.map(([reason, n]) => `${reason}\u00a0${count(n)}`).join(", "), class: "quiet",
      title: "since it started" });
}
