import { element, Keyed, setNotice, setText } from "./dom.js";
import { counted } from "./number.js";
import { duration, moment, now, setTime } from "./time.js";
import { name, subject, text, title } from "./words.js";

const runbook = "https://github.com/leafbus/leafbus/blob/main/docs/runbook.md#";

// The causes that raise alerts of several types: what fails, and what that means.
const stores = {
  mysql: ["MySQL is unavailable", "No new IDs come from the database."],
  jetstream: ["JetStream is unavailable", "No new IDs come from JetStream."],
  damaged: ["Records of tags are damaged", "An operator must fix them."],
  locked: ["Rows of tags are locked", "A transaction in MySQL holds them."],
};

/** headline is the title of a cause, and a sentence about it. */
export function headline(cause) {
  const [first] = cause.alerts;
  if (cause.kind === "leaf.node.lost") return lost(cause);
  const [what, meaning] = stores[cause.kind] ?? [title(first), cause.count === 1 ? `${subject(first)}: ${text(first)}` : `${subject(first)} and others: ${text(first)}`];
  if (!stores[cause.kind]) return [what, meaning];
  const { dry, keys } = cause;
  const left = keys - dry;
  const [refused, served] = [counted(dry, "tag"), counted(left, "tag")];
  return [what, [
    meaning,
    dry > 0 && `${refused} ${dry === 1 ? "has" : "have"} too few IDs left, and callers are refused.`,
    left > 0 && `${served} ${left === 1 ? "lives" : "live"} on the IDs in memory${cause.lasts_s == null ? "" : `, the first for ${duration(cause.lasts_s)}`}.`,
  ].filter(Boolean).join(" ")];
}

function lost({ nodes, alerts, count }) {
  const who = count === 1 ? `${nodes[0]} lost` : `${counted(count, "generator")} lost`;
  const heard = Math.max(...alerts.map(({ body }) => body.last_heard_ms));
  return [who, `${nodes.join(", ")}: last heard ${duration(Math.max(0, now() - heard) / 1000, 1)} ago, without a report that ${
    count === 1 ? "it ends" : "they end"}. Find out why, and start ${count === 1 ? "it" : "them"} again.`];
}

const named = 3; // generators that are named beside their number

/** reach says how many tags, workers and generators a cause has. */
function reach({ kind, keys, nodes }) {
  const about = stores[kind] || /^leaf\.segment\./.test(kind) ? "tag" : /^leaf\.worker\./.test(kind) ? "worker" : "";
  const names = nodes.length <= named ? `: ${nodes.join(", ")}` : "";
  return [about && keys > 0 && counted(keys, about), counted(nodes.length, "generator") + names].filter(Boolean).join(", ");
}

/** A CauseView is a box about one cause. The alerts that it raised are below, for those who look. */
export class CauseView {
  #title = element("strong", { class: "state" });
  #gone = element("span", { class: "chip", hidden: "" }, "generator gone");
  #text = element("p", { class: "alert-text" });
  #error = element("p", { class: "alert-error", hidden: "" });
  #since = element("time");
  #lasted = element("span");
  #links = element("span", { class: "runbook" });
  #linked = ""; // the types that the links lead to
  #reach = element("summary");
  #details;
  #rest = element("p", { class: "quiet", hidden: "" });
  #members;

  constructor() {
    const members = element("ul", { class: "members" });
    this.#members = new Keyed(members, (alert) => alert.id, () => new MemberView());
    this.element = element("li", { class: "alert cause" },
      element("p", { class: "alert-title" }, this.#title, this.#gone),
      element("p", { class: "alert-facts" }, this.#since, this.#lasted, this.#links),
      this.#text, this.#error,
      this.#details = element("details", {}, this.#reach, members, this.#rest));
  }

  update(cause) {
    Object.assign(this.element.dataset, { kind: cause.kind, harm: cause.harm, gone: String(Boolean(cause.gone)) });
    const [what, sentence] = headline(cause);
    setText(this.#title, what);
    this.#gone.hidden = !cause.gone;
    setText(this.#text, sentence);
    setNotice(this.#error, stores[cause.kind] && cause.alerts.find(({ body }) => body?.error)?.body.error);
    const since = Date.parse(cause.since);
    setTime(this.#since, since, (ms) => `since ${moment(ms)}`);
    setText(this.#lasted, `for ${duration(Math.max(0, now() - since) / 1000)}`);
    this.#link(cause.types);
    setText(this.#reach, reach(cause));
    this.#details.hidden = cause.kind === "leaf.node.lost" && cause.count === 1; // the box says it all
    this.#members.show(cause.alerts);
    setNotice(this.#rest, cause.count > cause.alerts.length ? `${counted(cause.count - cause.alerts.length, "more alert")}` : "");
  }

  /** link leads to what an operator should do about each type of alert. */
  #link(types) {
    if (this.#linked === types.join()) return;
    this.#linked = types.join();
    this.#links.replaceChildren(...types.map((type) =>
      element("a", { href: runbook + type.replace(/^leaf/, "").replaceAll(".", ""), rel: "noreferrer", target: "_blank" },
        types.length > 1 ? `Runbook: ${title({ type })}` : "Runbook")));
  }
}

/** A MemberView is a line about one alert of a cause. */
class MemberView {
  #key = element("span", { class: "member-key" });
  #node = element("span", { class: "node" });
  #text = element("span");
  #since = element("time");

  constructor() {
    this.element = element("li", { class: "member" }, this.#key, this.#node, this.#text, this.#since);
  }

  update(alert) {
    Object.assign(this.element.dataset, { type: alert.type, key: alert.key, node: alert.node });
    setText(this.#key, subject(alert));
    setText(this.#node, alert.node);
    setText(this.#text, `${title(alert)}: ${text(alert)}`);
    setTime(this.#since, Date.parse(alert.time), moment);
  }
}

/** A PastView is a line about an alert that ended. */
export class PastView {
  #member = new MemberView();
  #lasted = element("span");

  constructor() {
    this.element = this.#member.element;
    this.element.classList.add("over");
    this.element.append(this.#lasted);
  }

  update(alert) {
    this.#member.update(alert);
    setText(this.#lasted, `over after ${duration(Math.max(0, Date.parse(alert.over) - Date.parse(alert.time)) / 1000)}`);
  }
}
