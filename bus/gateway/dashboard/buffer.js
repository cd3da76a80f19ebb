import { element, Keyed, setNotice, setText } from "./dom.js";
import { count, counted, rate as rateText } from "./number.js";
import { Meter } from "./rate.js";
import { EmptyView, SegmentView } from "./segment.js";
import { duration, relative, setTime } from "./time.js";

const slots = 2; // a segment in use, and the next one

/** lasts says for how long IDs last at a rate, if the store is not there; prefix goes before a time. */
export function lasts(left, rate, prefix = "") {
  if (left === 0) return "empty";
  if (rate === null) return "–";
  return rate > 0 ? prefix + duration(left / rate) : "idle";
}

/** A BufferView is what one generator holds of a tag. */
export class BufferView {
  #shown; // the Buffer that is on the page
  #meter = new Meter();
  #node = element("strong", { class: "node" });
  #state = element("span", { class: "state" });
  #segments;
  #left = element("span", { class: "figure" });
  #lasts = element("p", { class: "figure" });
  #rate = element("p");
  #step = element("p");
  #refilled = element("time");
  #waiting = element("span", { class: "warn" });
  #error = element("p", { class: "error", hidden: "" });

  constructor() {
    const segments = element("div", { class: "segments" });
    this.#segments = new Keyed(segments, (s) => s.first ?? s.slot, (s) => (s.first ? new SegmentView() : new EmptyView()));
    this.element = element("li", { class: "buffer" },
      element("div", { class: "buffer-name" }, this.#node, this.#state),
      segments,
      element("div", { class: "buffer-facts" },
        element("p", {}, this.#left, " left"),
        this.#lasts, this.#rate, this.#step,
        element("p", { class: "refilled" }, this.#refilled, this.#waiting)),
      this.#error);
  }

  /** rate is IDs a second, measured; null before that is possible: the generator's own is that of whole segments. */
  get rate() {
    return this.#meter.rate;
  }

  get left() {
    return this.#shown.left;
  }

  update(buffer) {
    if (buffer !== this.#shown) this.#meter.add(buffer.taken); // else no new reading
    this.#shown = buffer;
    Object.assign(this.element.dataset, { node: buffer.node, left: buffer.left, state: buffer.state });
    setText(this.#node, buffer.node);
    this.#state.dataset.state = buffer.state;
    setText(this.#state, buffer.state);
    this.#segments.show(places(buffer));
    setText(this.#left, count(buffer.left));
    setText(this.#lasts, lasts(buffer.left, this.rate, "lasts "));
    setText(this.#rate, `${rateText(this.rate)}/s`);
    setText(this.#step, buffer.step ? `step ${count(buffer.step)}` : "step not known");
    if (buffer.refilled) setTime(this.#refilled, Date.parse(buffer.refilled), (ms) => `refilled ${relative(ms)}`);
    else setText(this.#refilled, "never refilled");
    setText(this.#waiting, buffer.waiting ? `, ${counted(buffer.waiting, "request")} waiting` : "");
    setNotice(this.#error, buffer.error);
  }
}

/** places are the segments of a buffer, and an empty place for each that is missing. */
function places({ segments, state }) {
  const found = segments.map((segment, i) => ({ ...segment, standby: i > 0 }));
  for (let slot = found.length; slot < slots; slot++) {
    const what = slot === 0 ? "nothing loaded" : "next not loaded";
    found.push({ slot, text: state === "exhausted" ? "no IDs left in the tag" : what });
  }
  return found;
}
