import { element, Keyed, setNotice, setText } from "./dom.js";
import { count, counted, rate as rateText } from "./number.js";
import { EmptyView, SegmentView } from "./segment.js";
import { duration, relative, setTime } from "./time.js";

const slots = 2; // a segment in use, and the next one

/** left says for how long IDs last at a rate, if the store is not there; prefix goes before a time. */
export function left(ids, rate, prefix = "") {
  if (ids === 0) return "empty";
  if (rate === null) return "–";
  return rate > 0 ? prefix + duration(ids / rate) : "idle";
}

/** A BufferView is what one generator holds of a tag. Of a strict tag it holds no IDs. */
export class BufferView {
  #node = element("strong", { class: "node" });
  #state = element("span", { class: "state" });
  #segments;
  #leftCount = element("span", { class: "figure" });
  #left = element("p", {}, this.#leftCount, " left");
  #lasts = element("p", { class: "figure" });
  #rate = element("p");
  #step = element("p");
  #refilled = element("time");
  #waiting = element("span", { class: "warn" });
  #error = element("p", { class: "error", hidden: "" });

  constructor() {
    const segments = element("div", { class: "segments" });
    this.#segments = new Keyed(segments, (s) => s.first ?? s.slot, viewOf);
    this.element = element("li", { class: "buffer" },
      element("div", { class: "buffer-name" }, this.#node, this.#state),
      segments,
      element("div", { class: "buffer-facts" },
        this.#left, this.#lasts, this.#rate, this.#step,
        element("p", { class: "refilled" }, this.#refilled, this.#waiting)),
      this.#error);
  }

  /** update takes what a generator holds, and its measured rate, null if that is not known. */
  update({ buffer, rate }) {
    const strict = buffer.order === "strict";
    Object.assign(this.element.dataset, { node: buffer.node, left: buffer.left, state: buffer.state });
    setText(this.#node, buffer.node);
    this.#state.dataset.state = buffer.state;
    setText(this.#state, buffer.state);
    this.#segments.show(strict ? [{ slot: "strict", text: waits(buffer) }] : places(buffer));
    for (const fact of [this.#left, this.#lasts, this.#step]) fact.hidden = strict; // there is nothing in memory
    setText(this.#leftCount, count(buffer.left));
    setText(this.#lasts, left(buffer.left, rate, "lasts "));
    setText(this.#rate, `${rateText(rate)}/s`);
    setText(this.#step, buffer.step ? `step ${count(buffer.step)}` : "step not known");
    const what = strict ? "written" : "refilled";
    if (buffer.refilled) setTime(this.#refilled, Date.parse(buffer.refilled), (ms) => `${what} ${relative(ms)}`);
    else setText(this.#refilled, `never ${what}`);
    setText(this.#waiting, buffer.waiting && !strict ? `, ${counted(buffer.waiting, "request")} waiting` : "");
    setNotice(this.#error, buffer.error);
  }
}

const viewOf = ({ first }) => (first ? new SegmentView() : new EmptyView());

/** waits says which requests for a strict tag wait: one write answers them all. */
function waits({ waiting }) {
  return `strict, so nothing is in memory${waiting ? `: ${count(waiting)} waiting` : ""}`;
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
