import { announce, byID, element, Keyed, setNotice, setText } from "./dom.js";
import { counted } from "./number.js";
import { duration, moment, now, setTime } from "./time.js";
import { subject, text, title } from "./words.js";

/** Alerts is the list of alerts: those that last, then those that are over. */
export class Alerts {
  #list = new Keyed(byID("alerts"), (alert) => alert.id, () => new AlertView());
  #announced; // IDs, undefined before the first answer
  #shown = [];
  #running; // names of the generators, undefined while they are not known

  show({ alerts, lasting, problem }) {
    this.#shown = alerts;
    this.#update();
    const listed = alerts.filter((alert) => !alert.over).length;
    setNotice(byID("alerts-note"), problem && !alerts.length ? "" : note(alerts.length, lasting, listed));
    this.#announce(alerts, lasting);
  }

  /** generators takes the names of those that run, undefined if the list is not complete. */
  generators(names) {
    this.#running = names && new Set(names);
    this.#update();
  }

  #update() {
    this.#list.show(this.#shown.map((alert) => ({
      ...alert,
      gone: !alert.over && this.#running !== undefined && !this.#running.has(alert.node),
    })));
  }

  /** What is new is said once; what was there when the page came, in a number. */
  #announce(alerts, lasting) {
    const before = this.#announced;
    this.#announced = new Set(alerts.map((alert) => alert.id));
    const fresh = before ? alerts.filter((alert) => !alert.over && !before.has(alert.id)) : [];
    if (fresh.length > 0) announce(fresh.map((alert) => `Alert: ${title(alert)}, ${sentence(alert)}`).join(". "));
    else if (!before && lasting > 0) announce(`${counted(lasting, "open alert")}`);
  }
}

const sentence = (alert) => `${subject(alert)}: ${text(alert)}`;

function note(all, lasting, listed) {
  if (all === 0) return "No alerts in the last week";
  if (lasting > listed) return counted(lasting - listed, "more open alert");
  return lasting === 0 ? "No open alerts" : "";
}

class AlertView {
  #title = element("strong", { class: "state" });
  #gone = element("span", { class: "chip", hidden: "" }, "generator gone");
  #text = element("p", { class: "alert-text" });
  #node = element("span", { class: "node" });
  #since = element("time");
  #lasted = element("span");

  constructor() {
    this.element = element("li", { class: "alert" },
      element("p", { class: "alert-title" }, this.#title, this.#gone),
      this.#text,
      element("p", { class: "alert-facts" }, this.#node, this.#since, this.#lasted));
  }

  update(alert) {
    const at = Date.parse(alert.time);
    Object.assign(this.element.dataset, { type: alert.type, key: alert.key, node: alert.node });
    this.element.classList.toggle("over", Boolean(alert.over));
    setText(this.#title, title(alert));
    this.#gone.hidden = !alert.gone;
    setText(this.#text, sentence(alert));
    setText(this.#node, alert.node);
    setTime(this.#since, at, (ms) => (alert.over ? moment(ms) : `since ${moment(ms)}`));
    const seconds = Math.max(0, (alert.over ? Date.parse(alert.over) : now()) - at) / 1000;
    setText(this.#lasted, alert.over ? `over after ${duration(seconds)}` : `for ${duration(seconds)}`);
  }
}
