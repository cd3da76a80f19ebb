import { announce, byID, element, setNotice, setText } from "./dom.js";
import { waits } from "./generators.js";
import { count, counted, rate } from "./number.js";
import { refusal } from "./poll.js";
import { Sparkline } from "./sparkline.js";
import { duration } from "./time.js";

const silence = 3_000; // ms without an answer that are worth a word

/** Summary is the head of the page: the verdict in words, and the totals. */
export class Summary {
  #rates;
  #history = new Sparkline(byID("history"));
  #overview;
  #heard = performance.now(); // when the last answer came
  #refusal = ""; // what the generator said in place of an answer

  constructor(rates) {
    this.#rates = rates;
    setInterval(() => this.#judge(), 1000);
    document.addEventListener("visibilitychange", () => { this.#heard = performance.now(); }); // nobody asked meanwhile
  }

  overview(overview) {
    this.#overview = overview;
    this.#heard = performance.now();
    this.#refusal = "";
    const ids = this.#rates.total(overview.nodes, "ids");
    setText(byID("rate-ids"), rate(ids));
    if (ids !== null) this.#history.add(ids);
    byID("rate-ids").title = ids === null ? "" : `${count(ids)} IDs/s`;
    setText(byID("rate-requests"), rate(this.#rates.total(overview.nodes, "requests")));
    this.#figure("rate-refused", rate(this.#rates.total(overview.nodes, "refused")));
    const failed = this.#rates.total(overview.nodes, "failed") > 0;
    byID("rate-refused").classList.toggle("bad", failed);
    const bad = failed || overview.nodes.some(this.#rates.overloaded); // good news would hide it
    byID("rate-ids").parentElement.classList.toggle("failing", bad);
    setText(byID("waiting"), count(overview.nodes.reduce((sum, node) => sum + node.counts.waiting, 0)));
    byID("waiting").classList.toggle("warn", overview.nodes.some(waits));
    const lasting = overview.causes.length;
    this.#figure("lasting", count(lasting));
    document.title = lasting > 0 ? `(${lasting}) Leafbus` : "Leafbus";
    setNotice(byID("overview-problem"), overview.problem);
    this.#judge();
  }

  failed(error) {
    this.#refusal = refusal(error);
    this.#judge();
  }

  /** A figure that should be 0 stands out where it is not. */
  #figure(id, text) {
    setText(byID(id), text);
    byID(id).classList.toggle("warn", !["0", "–"].includes(text));
  }

  #judge() {
    const quiet = performance.now() - this.#heard;
    const away = quiet > silence;
    const wasAway = document.body.classList.contains("stale");
    if (away !== wasAway) announce(away ? "No answer from the generator" : "The generator answers again");
    document.body.classList.toggle("stale", away);
    const since = `for ${count(Math.floor(quiet / 1000))} s`;
    const silent = this.#refusal ? `No state ${since}: ${this.#refusal}` : `No answer from the generator ${since}`;
    const parts = away ? [["bad", silent]] : judge(this.#overview, this.#rates);
    const verdict = byID("verdict");
    if (!parts || verdict.textContent === parts.map(([, words]) => words).join("; ")) return;
    verdict.dataset.state = parts[0][0];
    verdict.replaceChildren(...parts.flatMap(([state, words], i) =>
      [i > 0 ? "; " : "", element("span", { "data-state": state }, words)]));
  }
}

/** judge returns what to say of the installation, the worst first: a state (bad, warn, good or empty) and words. */
function judge(overview, rates) {
  if (!overview) return undefined;
  const { nodes, lost, causes: { length: lasting } } = overview;
  const parts = [];
  const failed = rates.total(nodes, "failed");
  if (failed > 0) parts.push(["bad", `Callers are refused, ${rate(failed)}/s`]);
  const all = counted(nodes.length, "generator");
  const who = ({ length }) => `${length} of ${all} ${length === 1 ? "is" : "are"}`;
  const unfit = nodes.filter((node) => !node.ready);
  if (unfit.length > 0) {
    const missing = [...new Set(unfit.flatMap((node) => node.missing ?? []))].join(", ");
    parts.push(["bad", `${who(unfit)} not ready: ${missing}`]);
  }
  const overloaded = nodes.filter(rates.overloaded);
  if (overloaded.length > 0) parts.push(["warn", `${who(overloaded)} overloaded`]);
  if (lost.length > 0) {
    const gone = lost.length === 1 ? lost[0].node : counted(lost.length, "generator");
    const silent = Math.min(...lost.map((node) => node.silent_ms)) / 1000;
    parts.push(["warn", `${gone} lost, last heard ${duration(silent, 1)} ago`]);
  }
  const ready = unfit.length === 0 && `${all}, ${nodes.length === 1 ? "ready" : "all ready"}`;
  if (ready) parts.push([parts.length === 0 && !lasting ? "good" : "", ready]);
  if (lasting > 0) parts.push([parts[0][0] ? "" : "warn", counted(lasting, "open alert")]);
  return parts[0][0] ? parts : [["warn", parts[0][1]], ...parts.slice(1)];
}
