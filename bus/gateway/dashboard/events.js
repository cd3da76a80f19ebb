import { byID, element, Keyed, setNotice, setText } from "./dom.js";
import { Poll, refusal } from "./poll.js";
import { moment, setTime } from "./time.js";

/** Events is the list of the latest events. A style hides those that are no alerts. */
export class Events {
  #list = new Keyed(byID("events"), ({ id }) => id, () => new EventView());

  constructor() {
    new Poll({
      path: () => "dashboard/events",
      onAnswer: (answer) => this.#show(answer),
      onFailure: (error) => setNotice(byID("events-problem"), refusal(error)),
    }).start();
  }

  #show({ events, problem }) {
    setNotice(byID("events-problem"), problem);
    setText(byID("events-note"), events.length ? `The latest ${events.length}` : "No events yet");
    this.#list.show(events);
  }
}

class EventView {
  #time = element("time");
  #parts = ["type", "key", "node", "text"].map((part) => element("span", { class: `event-${part}` }));

  constructor() {
    this.element = element("li", { class: "event" }, this.#time, ...this.#parts);
  }

  update({ id, type, subject, severity, source, time, data }) {
    const { dataset } = this.element;
    if (dataset.id === id) return; // events do not change
    Object.assign(dataset, { id, severity });
    setTime(this.#time, Date.parse(time), moment);
    const kind = type.replace(/^leaf\./, "");
    // Any peer of a generator may publish that it is lost, or was.
    const node = kind.startsWith("node.") ? subject : source.replace("/leaf/", "");
    const texts = [kind.replace(/[._]/g, " "), subject, node, facts(subject, data)];
    for (const [i, part] of this.#parts.entries()) setText(part, texts[i]);
    this.#parts[1].title = subject;
  }
}

/** facts are the fields of a body, as leaf events prints them: without the key, the generator and its configuration. */
const facts = (key, body) => Object.entries(body ?? {})
  .filter(([name, value]) => value !== key && name !== "node" && name !== "config")
  .map(([name, value]) => `${name}=${typeof value === "object" ? JSON.stringify(value) : value}`)
  .join(" ");
