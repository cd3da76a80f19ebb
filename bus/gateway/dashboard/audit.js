import { byID, element, facts, setNotice, setText } from "./dom.js";
import { count, counted, id, range } from "./number.js";
import { ask } from "./poll.js";
import { lines, Table } from "./table.js";
import { local } from "./time.js";

const patience = 70_000; // ms; longer than the generator's own limit, whose error says more
const prefix = "#audit=";
const stores = { kv: "JetStream", mysql: "MySQL" };

/** auditOf is the address of a tag's audit on this page. */
export const auditOf = (tag) => prefix + encodeURIComponent(tag);

/** Audit is the section that audits one tag, or all tags and workers. */
export class Audit {
  #input = byID("audit-tag");
  #all = byID("audit-all");
  #request; // an AbortController, while one is under way
  #shares = part("audit-shares", [
    { name: "Generator", fill: (cell, s) => lines(cell, { text: s.node, class: "node" }) },
    { name: "Share", fill: fillShare },
    { name: "IDs", fill: (cell, s) => lines(cell, { text: id(s.ids) }) },
    { name: "Refills", fill: (cell, s) => lines(cell, { text: count(s.refills) }) },
  ], (s) => s.node);
  #tags = part("audit-tags", [
    { name: "Tag", fill: (cell, t) => cell.replaceChildren(element("a", { href: auditOf(t.tag), class: "node" }, t.tag)) },
    { name: "Result", fill: fillResult },
    { name: "Claimed below", fill: (cell, t) => lines(cell, { text: claimedBelow(t) }) },
    { name: "max_id", fill: (cell, t) => lines(cell, { text: maxID(t) }) },
    { name: "Reported", fill: (cell, t) => lines(cell, { text: id(t.reported) }) },
    { name: "Lost", fill: (cell, t) => lines(cell, { text: id(t.lost) }) },
    { name: "Skipped", fill: (cell, t) => lines(cell, { text: id(t.skipped) }) },
    { name: "Unreported", fill: (cell, t) => lines(cell, { text: id(t.unreported) }) },
  ], (t) => t.tag);
  #workers = part("audit-workers", [
    { name: "Worker", fill: (cell, w) => lines(cell, { text: String(w.worker), class: "node" }) },
    { name: "Result", fill: fillResult },
    { name: "Generator", fill: (cell, w) => lines(cell, { text: w.node || "–" }) },
    { name: "May issue until", fill: (cell, w) => lines(cell, { text: w.node ? local(Date.parse(w.reserved_until)) : "–" }) },
  ], (w) => w.worker);

  constructor() {
    byID("audit").noValidate = true; // what is wrong is said in the section
    byID("audit").addEventListener("submit", (event) => {
      event.preventDefault();
      this.#auditTag(this.#input.value.trim());
    });
    this.#all.addEventListener("click", () => {
      if (this.#all.getAttribute("aria-disabled") !== "true") this.#auditAll();
    });
    addEventListener("hashchange", () => this.#follow());
    this.#follow();
  }

  /** follow audits the tag that the page's address names. */
  #follow() {
    if (!location.hash.startsWith(prefix)) return;
    const tag = decode(location.hash.slice(prefix.length));
    history.replaceState(null, "", "#audit-title"); // so that the same link works again
    byID("audit-title").scrollIntoView();
    this.#input.focus({ preventScroll: true });
    this.#auditTag(tag);
  }

  #auditTag(tag) {
    this.#input.value = tag;
    this.#input.setAttribute("aria-invalid", String(!tag));
    if (!tag) return this.#fail("Enter the name of a tag, or audit everything.");
    this.#run(`Auditing ${tag} …`, `?${new URLSearchParams({ tag })}`, (audit) => this.#showTag(audit));
  }

  async #auditAll() {
    this.#all.setAttribute("aria-disabled", "true"); // the generator refuses a second one
    this.#input.setAttribute("aria-invalid", "false");
    await this.#run("Auditing everything, which may take a minute …", "", (audit) => this.#showAll(audit));
    this.#all.setAttribute("aria-disabled", "false");
  }

  async #run(note, query, show) {
    this.#request?.abort();
    const request = new AbortController();
    this.#request = request;
    byID("audit-result").hidden = true;
    setNotice(byID("audit-problem"), "");
    setText(byID("audit-note"), note);
    try {
      const audit = await ask(`dashboard/audit${query}`, request.signal, patience);
      if (request.signal.aborted) return;
      show(audit);
      byID("audit-result").hidden = false;
    } catch (error) {
      if (!request.signal.aborted) this.#fail(error.message);
    }
  }

  #fail(message) {
    this.#request?.abort();
    byID("audit-result").hidden = true;
    setText(byID("audit-note"), "");
    setNotice(byID("audit-problem"), message);
  }

  #showTag(a) {
    this.#judge(a.contradictions, a.contradictions.length, `the audit of ${a.tag}`);
    facts(byID("audit-facts"),
      ["Claimed below", claimedBelow(a), "every ID that any generator has claimed is below this one"],
      ["max_id", maxID(a), "where the next range begins, in the store"],
      ["Store", stores[a.store] ?? a.store],
      ["Last claim", a.last && `${range(a.last.first, a.last.last)} by ${a.last.node}, ${local(Date.parse(a.last.time))}`, "as the tag’s record has it"],
      ["Refill events", count(a.events), "that the stream still has"],
      ["Events since", a.since && local(Date.parse(a.since)), "nothing is known of older claims, except that they were made"],
      ["Events from ID", a.from && id(a.from), "the lowest ID that an event reports"],
      ...counts(a, a.gaps));
    const all = Number(a.reported);
    this.#shares(a.shares.map((share) => ({ ...share, part: all > 0 ? Number(share.ids) / all : 0 })));
    this.#tags([]);
    this.#workers([]);
  }

  #showAll(a) {
    this.#judge(a.contradictions, a.found, `the audit of ${counted(a.tags, "tag")} and ${counted(a.workers, "worker")}`);
    facts(byID("audit-facts"),
      ["Tags", count(a.tags)],
      ["Workers", count(a.workers)],
      ["Events", count(a.events), "that the stream still has"],
      ["Events since", a.since && local(Date.parse(a.since)), "nothing is known of older claims, except that they were made"],
      ...counts(a),
      ["Took", `${count(a.elapsed_ms)} ms`]);
    this.#shares([]);
    this.#tags(a.first_tags, a.tags);
    this.#workers(a.first_workers, a.workers);
  }

  /** judge shows contradictions, which may be the first of those that were found. */
  #judge(shown, found, what) {
    const words = found === 0 ? "No contradictions" : counted(found, "contradiction");
    const verdict = byID("audit-verdict");
    verdict.classList.toggle("bad", found > 0);
    setText(verdict, words);
    setText(byID("audit-note"), `${words} in ${what}`);
    byID("contradictions").replaceChildren(...shown.map(contradiction));
    setText(byID("contradictions-rest"), shown.length < found ? `These are the first ${count(shown.length)}. Run leaf audit to see all.` : "");
  }
}

/** part returns a function that fills a table, and hides it with its title where it is empty. */
function part(name, columns, key) {
  const table = new Table(byID(name), columns, key, (row, item) => { row.dataset.key = key(item); });
  const title = byID(`${name}-title`);
  const words = title.textContent;
  return (items, all = items.length) => {
    table.show(items);
    byID(`${name}-part`).hidden = items.length === 0;
    setText(title, items.length < all ? `${words}: ${count(items.length)} of ${count(all)}, those with contradictions first` : words);
  };
}

function contradiction({ kind, tag, worker, first, last, message }) {
  const about = tag ? `${tag} ` : worker == null ? "" : `worker ${worker} `;
  return element("li", { class: "alert", "data-kind": kind },
    element("p", { class: "alert-title" }, element("strong", { class: "state" }, kind.replaceAll("_", " "))),
    element("p", { class: "alert-text error" }, message),
    element("p", { class: "alert-facts" }, about + (first && last ? range(first, last) : "")));
}

const claimedBelow = ({ end, problem }) => (end ? id(end) : problem ? "not known" : "nothing claimed");

const maxID = ({ max_id }) => (max_id ? id(max_id) : "not in the store");

/** counts are those of IDs, which are strings. */
const counts = ({ reported, lost, skipped, unreported }, gaps = 0) => [
  ["Reported", id(reported), "IDs that the events report as claimed"],
  ["Lost", id(lost) + (gaps > 0 ? ` in ${counted(gaps, "gap")}` : ""), "IDs between these that no event reports: never used, or their event was lost"],
  ["Skipped", id(skipped), "IDs that an operator skipped by moving max_id"],
  ["Unreported", id(unreported), "IDs that were claimed after the last event"],
];

function fillShare(cell, { node, part }) {
  const percent = `${(100 * part).toFixed(1)} %`;
  cell.replaceChildren(
    element("meter", { min: "0", max: "1", value: String(part), "aria-label": `Share of ${node}: ${percent}` }), ` ${percent}`);
}

function fillResult(cell, { contradictions }) {
  lines(cell, contradictions > 0
    ? { text: counted(contradictions, "contradiction"), class: "state bad" }
    : { text: "agrees", class: "state good" });
}

function decode(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text; // somebody wrote it by hand
  }
}
