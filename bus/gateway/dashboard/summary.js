import { announce, byID, setNotice, setText } from "./dom.js";
import { waits } from "./generators.js";
import { count, counted, rate } from "./number.js";
import { refusal } from "./poll.js";
import { Sparkline } from "./sparkline.js";

const silence = 3_000; // ms without an answer that are worth a word

/** Summary is the head of the page: the verdict in words, and the totals. */
export class Summary {
  #rates;
  #history = new Sparkline(byID("history"));
  #overview;
  #lasting;
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
    const ids = this.#rates.total("ids");
    setText(byID("rate-ids"), rate(ids));
    if (ids !== null) this.#history.add(ids);
    byID("rate-ids").title = ids === null ? "" : `${count(ids)} IDs/s`;
    setText(byID("rate-requests"), rate(this.#rates.total("requests")));
    this.#figure("rate-refused", rate(this.#rates.total("refused")));
    setText(byID("waiting"), count(overview.nodes.reduce((sum, node) => sum + node.counts.waiting, 0)));
    byID("waiting").classList.toggle("warn", overview.nodes.some(waits));
    setNotice(byID("overview-problem"), overview.problem);
    this.#judge();
  }

  /** alerts takes the number of alerts that last. */
  alerts(lasting) {
    this.#lasting = lasting;
    this.#figure("lasting", count(lasting));
    document.title = lasting > 0 ? `(${lasting}) Leafbus` : "Leafbus";
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
    const verdict = byID("verdict");
    if (away) {
      const since = `for ${count(Math.floor(quiet / 1000))} s`;
      verdict.dataset.state = "bad";
      setText(verdict, this.#refusal ? `No state ${since}: ${this.#refusal}` : `No answer from the generator ${since}`);
    } else if (this.#overview) {
      const [state, words] = judge(this.#overview.nodes, this.#lasting);
      verdict.dataset.state = state;
      setText(verdict, words);
    }
  }
}

/** judge returns the state of the installation, good, warn or bad, and a line about it. */
function judge(nodes, lasting) {
  if (nodes.length === 0) return ["bad", "No generator answers"];
  const all = counted(nodes.length, "generator");
  const unfit = nodes.filter((node) => !node.ready);
  if (unfit.length > 0) {
    const missing = [...new Set(unfit.flatMap((node) => node.missing ?? []))].join(", ");
    const who = nodes.length === 1 ? "The generator is" : `${unfit.length} of ${all} ${unfit.length === 1 ? "is" : "are"}`;
    return ["bad", `${who} not ready: ${missing}`];
  }
  const ready = `${all}, ${nodes.length === 1 ? "ready" : "all ready"}`;
  return lasting > 0 ? ["warn", `${ready}; ${counted(lasting, "open alert")}`] : ["good", ready];
}
