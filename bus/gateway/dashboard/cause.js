import { element, Keyed, setText } from "./dom.js";
import { count, counted } from "./number.js";
import { duration, moment, now, setTime } from "./time.js";

const runbook = "https://github.com/leafbus/leafbus/blob/main/docs/runbook.md#";
const named = 3; // generators that are named beside their number

/** headline is a cause in words: "Segment starved". */
export const headline = ({ kind }) => (kind.startsWith("nats") ? "NATS" + kind.slice(4) : kind[0].toUpperCase() + kind.slice(1)).replace(/[._]/g, " ");

/** about says which tags, workers or generators a finding is about. */
function about({ keys, count: all }) {
  const more = (all ?? 0) - (keys?.length ?? 0);
  return (keys ?? []).join(", ") + (more > 0 ? ` and ${count(more)} more` : "");
}

/** A CauseView is a box about one cause. What each generator says of it is below, for those who look. */
export class CauseView {
  #title = element("strong", { class: "state" });
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
    this.element = element("li", { class: "alert cause" },
      element("p", { class: "alert-title" }, this.#title),
      element("p", { class: "alert-facts" }, this.#since, this.#lasted, element("span", { class: "runbook" }, this.#link)),
      this.#text, this.#do,
      element("details", {}, this.#reach, members));
  }

  update(cause) {
    const [first] = cause.findings;
    const nodes = cause.findings.map(({ node }) => node).sort();
    Object.assign(this.element.dataset, { kind: cause.kind, severity: cause.severity });
    setText(this.#title, headline(cause));
    setText(this.#text, [about(first), first.message].filter(Boolean).join(": "));
    setText(this.#do, `What to do: ${first.do}`);
    const since = Date.parse(cause.since);
    setTime(this.#since, since, (ms) => `since ${moment(ms)}`);
    setText(this.#lasted, `for ${duration(Math.max(0, now() - since) / 1000)}`);
    this.#link.href = runbook + cause.kind.replaceAll(".", "");
    setText(this.#reach, counted(nodes.length, "generator") + (nodes.length <= named ? `: ${nodes.join(", ")}` : ""));
    this.#members.show(cause.findings);
  }
}

/** A MemberView is a line about what one generator says of a cause. */
class MemberView {
  #node = element("span", { class: "node" });
  #about = element("span", { class: "member-key" });
  #text = element("span");
  #since = element("time");

  constructor() {
    this.element = element("li", { class: "member" }, this.#node, this.#about, this.#text, this.#since);
  }

  update(finding) {
    this.element.dataset.node = finding.node;
    setText(this.#node, finding.node);
    setText(this.#about, about(finding));
    setText(this.#text, finding.message);
    setTime(this.#since, Date.parse(finding.since), moment);
  }
}
