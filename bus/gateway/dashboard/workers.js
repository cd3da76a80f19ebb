import { byID, setNotice, setText } from "./dom.js";
import { counted } from "./number.js";
import { Pager } from "./pager.js";
import { Poll, refusal } from "./poll.js";
import { lines, Table } from "./table.js";
import { local, relative } from "./time.js";

const registries = { kv: "JetStream", zookeeper: "ZooKeeper" };

/** Workers is the table of workers of snowflakes. It asks while it can be seen. */
export class Workers {
  #table = new Table(byID("workers"), [
    { name: "Worker", fill: (cell, w) => lines(cell, { text: String(w.worker), class: "node" }) },
    { name: "Generator", fill: (cell, w) => lines(cell, { text: w.node }) },
    { name: "State", fill: (cell, w) => lines(cell, w.running ? { text: "runs", class: "state good" } : { text: "does not run", class: "state off" }) },
    { name: "Reserved until", fill: (cell, w) => fillTime(cell, w.reserved_until) },
    { name: "Acquired", fill: (cell, w) => fillTime(cell, w.acquired) },
    { name: "Last reported", fill: (cell, w) => fillTime(cell, w.reported) },
  ], (w) => w.worker, (row, w) => { row.dataset.worker = w.worker; });
  #pager = new Pager("workers", () => this.#poll.start());
  #poll = new Poll({
    path: () => `dashboard/workers?from=${this.#pager.start || 0}`,
    every: () => 5_000,
    onAnswer: (page) => this.#show(page),
    onFailure: (error) => setNotice(byID("workers-problem"), refusal(error)),
  });

  constructor() {
    new IntersectionObserver(([{ isIntersecting }]) => {
      if (isIntersecting) this.#poll.start();
      else this.#poll.stop();
    }).observe(byID("workers-section"));
  }

  #show({ registry, workers, next, problem }) {
    setNotice(byID("workers-problem"), problem);
    this.#table.show(workers);
    this.#pager.show(next, workers.length);
    const kept = `, kept in ${registries[registry] ?? registry}`;
    const none = problem ? "" : "No worker is held";
    setText(byID("workers-note"), workers.length ? counted(workers.length, "worker") + kept : none);
  }
}

function fillTime(cell, time) {
  const ms = Date.parse(time);
  if (Number.isNaN(ms)) return lines(cell, { text: "–" });
  lines(cell, { text: relative(ms), title: local(ms) });
}
