import { byID, element, Keyed, setText } from "./dom.js";
import { counted } from "./number.js";
import { moment, setTime } from "./time.js";
import { text, title } from "./words.js";

const most = 100;

/** shown is a CloudEvent as the page has it. Any peer of a generator may publish that it is lost, or was. */
export const shown = ({ subject: key, data: body, source, ...rest }) => (
  { ...rest, key, body, node: rest.type.startsWith("leaf.node.") ? key : source.replace("/leaf/", "") });

/** Events is the list of the latest events. */
export class Events {
  #list = new Keyed(byID("events"), (event) => event.id, () => new EventView());
  #alertsOnly = byID("events-alerts");
  #filter = byID("events-filter");
  #pause = byID("events-pause");
  #latest = [];
  #held; // what was latest when the list was paused

  constructor() {
    this.#alertsOnly.addEventListener("change", () => this.#update());
    this.#filter.addEventListener("input", () => this.#update());
    this.#pause.addEventListener("click", () => {
      this.#held = this.#held ? undefined : this.#latest;
      this.#pause.setAttribute("aria-pressed", String(Boolean(this.#held)));
      this.#update();
    });
  }

  show(events) {
    this.#latest = events.slice(0, most);
    this.#update();
  }

  #update() {
    const all = this.#held ?? this.#latest;
    const wanted = this.#filter.value.trim().toLowerCase();
    const shown = all.filter((event) =>
      (!this.#alertsOnly.checked || event.severity === "alert") && (!wanted || words(event).includes(wanted)));
    this.#list.show(shown);
    setText(byID("events-note"), this.#note(shown.length, all.length));
  }

  #note(shown, all) {
    if (this.#held) {
      const known = new Set(this.#held.map((event) => event.id));
      const newer = this.#latest.filter((event) => !known.has(event.id)).length;
      return `Paused, ${newer >= most ? `${most} or more` : newer} newer`;
    }
    if (all === 0) return "No events yet";
    return shown === all ? `The latest ${all}` : `${shown} of the latest ${counted(all, "event")}`;
  }
}

const words = (event) => [event.type, title(event), event.key, event.node, text(event)].join(" ").toLowerCase();

class EventView {
  #parts = Object.fromEntries(["type", "key", "node", "text"].map((part) => [part, element("span", { class: `event-${part}` })]));
  #time = element("time");

  constructor() {
    this.element = element("li", { class: "event" }, this.#time, ...Object.values(this.#parts));
  }

  update(event) {
    const { dataset } = this.element;
    if (dataset.id === event.id) return; // events do not change
    Object.assign(dataset, { id: event.id, type: event.type, key: event.key, severity: event.severity });
    setTime(this.#time, Date.parse(event.time), moment);
    setText(this.#parts.type, title(event));
    setText(this.#parts.key, event.key);
    setText(this.#parts.node, event.node);
    setText(this.#parts.text, text(event));
    this.#parts.key.title = event.key;
  }
}
