import { announce, byID, element, Keyed, setNotice, setText } from "./dom.js";
import { count, counted } from "./number.js";
import { duration, moment, now, setTime } from "./time.js";

const runbook = "https://github.com/leafbus/leafbus/blob/main/docs/runbook.md#";
const named = 3; // generators that are named beside their number

/** headline is a cause in words: "Segment starved". */
const headline = ({ kind }) => kind.replace(/^nats|^./, (start) => start.toUpperCase()).replace(/[._]/g, " ");

/** words say which tags, workers or generators a finding is about, and what is wrong. */
function words({ keys = [], count: all = 0, message }) {
  const more = all - keys.length;
  return [keys.join(", ") + (more > 0 ? ` and ${count(more)} more` : ""), message].filter(Boolean).join(": ");
}

/** Alerts is the list of what is wrong, a box for each cause. */
export class Alerts {
  #causes = new Keyed(byID("alerts"), ({ kind }) => kind, () => new CauseView());
  #announced; // kinds of causes, undefined before the first answer

  show({ causes, problem }) {
    this.#causes.show(causes);
    setNotice(byID("alerts-note"), causes.length || problem ? "" : "No open alerts");
    this.#announce(causes);
  }

  /** A new cause is announced once. What was there when the page came is only counted. */
  #announce(causes) {
    const before = this.#announced;
    this.#announced = new Set(causes.map(({ kind }) => kind));
    const fresh = before ? causes.filter(({ kind }) => !before.has(kind)) : [];
    const texts = fresh.map((cause) => `Alert: ${headline(cause)}: ${cause.findings[0].message}`);
    if (texts.length > 0) announce(texts.join(". "));
    else if (!before && causes.length > 0) announce(counted(causes.length, "open alert"));
  }
}

/** A CauseView is a box about one cause. What each generator says of it is below, for those who look. */
class CauseView {
  #title = element("strong", { class: "state warn" });
  #text = element("p", { class: "alert-text" });
  #do = element("p", { class: "alert-do" });
  #since = element("time");
  #lasted = element("span");
  #link = element("a", { rel: "noreferrer", target: "_blank" }, "Runbook");
  #reach = element("summary");
  #members;

  constructor() {
    const members = element("ul", { class: "members" });
    this.#members = new Keyed(members, ({ node }) => node, () => new MemberView());
    this.element = element("li", { class: "alert" },
      element("p", { class: "alert-title" }, this.#title),
      element("p", { class: "alert-facts" }, this.#since, this.#lasted, this.#link),
      this.#text, this.#do,
      element("details", {}, this.#reach, members));
  }

  update(cause) {
    const [first] = cause.findings;
    const nodes = cause.findings.map(({ node }) => node).sort();
    Object.assign(this.element.dataset, { kind: cause.kind, severity: cause.severity });
    setText(this.#title, headline(cause));
    setText(this.#text, words(first));
    setText(this.#do, `What to do: ${first.do}`);
    const since = Date.parse(cause.since);
    setTime(this.#since, since, (ms) => `since ${moment(ms)}`);
    setText(this.#lasted, `for ${duration(Math.max(0, now() - since) / 1000)}`);
    this.#link.href = runbook + cause.kind.replaceAll(".", "");
    setText(this.#reach, counted(nodes.length, "generator") + (nodes.length <= named ? `: ${nodes.join(", ")}` : ""));
    this.#members.show(cause.findings);
  }
}

/** A MemberView is what one generator says of a cause. */
class MemberView {
  #node = element("strong", { class: "node" });
  #text = element("span");

  constructor() {
    this.element = element("li", { class: "member" }, this.#node, this.#text);
  }

  update(finding) {
    setText(this.#node, finding.node);
    setText(this.#text, ` since ${moment(Date.parse(finding.since))}, ${words(finding)}`);
  }
}
