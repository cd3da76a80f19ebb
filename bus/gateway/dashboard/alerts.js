import { announce, byID, element, Keyed, setNotice, setText } from "./dom.js";
import { counted } from "./number.js";
import { duration, moment, now, setTime } from "./time.js";
import { subject, text, title } from "./words.js";

const few = 6; // that are shown of many, until all are wanted

/** Alerts is the list of alerts: those that last, those whose generator is gone, those that are over. */
export class Alerts {
  #list = new Keyed(byID("alerts"), (alert) => alert.id, () => new AlertView());
  #button = byID("alerts-all");
  #announced; // IDs, undefined before the first answer
  #feed = { alerts: [], lasting: 0, gone: 0 };
  #all = false;

  constructor() {
    this.#button.addEventListener("click", () => {
      this.#all = !this.#all;
      this.#update();
      if (!this.#all) byID("alerts-title").scrollIntoView(); // what was looked at is not there any more
    });
  }

  show(feed) {
    this.#feed = feed;
    this.#update();
    this.#announce(feed.alerts, feed.lasting);
  }

  #update() {
    const { alerts, lasting, gone, problem } = this.#feed;
    const shown = this.#all ? alerts : alerts.slice(0, few);
    this.#list.show(shown);
    setNotice(byID("alerts-note"), problem && !alerts.length ? "" : note(alerts.length, lasting));
    setText(byID("alerts-rest"), rest(shown, lasting, gone));
    setText(this.#button, this.#all ? `Show the first ${few}` : `Show ${alerts.length === lasting ? "all" : "the latest"} ${alerts.length}`);
    this.#button.setAttribute("aria-expanded", String(this.#all));
    byID("alerts-more").hidden = alerts.length <= few;
  }

  /** What is new is said once; what was there when the page came, in a number. */
  #announce(alerts, lasting) {
    const before = this.#announced;
    this.#announced = new Set(alerts.map((alert) => alert.id));
    const fresh = before ? alerts.filter((alert) => lasts(alert) && !before.has(alert.id)) : [];
    if (fresh.length > 0) announce(fresh.map((alert) => `Alert: ${title(alert)}, ${sentence(alert)}`).join(". "));
    else if (!before && lasting > 0) announce(`${counted(lasting, "open alert")}`);
  }
}

const sentence = (alert) => `${subject(alert)}: ${text(alert)}`;

const lasts = ({ over, gone }) => !over && !gone;

function note(all, lasting) {
  if (all === 0) return "No alerts in the last week";
  return lasting === 0 ? "No open alerts" : "";
}

/** rest says what the list leaves out of what is not over. */
function rest(shown, lasting, gone) {
  const open = lasting - shown.filter(lasts).length;
  const orphaned = gone - shown.filter((alert) => alert.gone).length;
  return [
    open > 0 && counted(open, "more open alert"),
    orphaned > 0 && `${counted(orphaned, open > 0 ? "alert" : "more alert")} of generators that are gone`,
  ].filter(Boolean).join(" and ");
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
    this.element.classList.toggle("over", !lasts(alert));
    setText(this.#title, title(alert));
    this.#gone.hidden = !alert.gone;
    setText(this.#text, sentence(alert));
    setText(this.#node, alert.node);
    setTime(this.#since, at, (ms) => (alert.over ? moment(ms) : `since ${moment(ms)}`));
    const seconds = Math.max(0, (alert.over ? Date.parse(alert.over) : now()) - at) / 1000;
    setText(this.#lasted, alert.over ? `over after ${duration(seconds)}` : `for ${duration(seconds)}`);
  }
}
