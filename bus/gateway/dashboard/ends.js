import { byID, element, Keyed, setNotice, setText } from "./dom.js";
import { count, counted, rate as rateText } from "./number.js";
import { duration } from "./time.js";

const most = 10; // tags that are listed
const soon = 60; // seconds, which are red; more are amber

/** urgency is the class of a time that is left, in seconds; infinite: nothing is taken. */
export const urgency = (seconds) => (seconds < soon ? "bad" : Number.isFinite(seconds) ? "warn" : "quiet");

/**
 * endOf says when a tag's callers are refused if nothing more is reserved: generators pass requests on to others, so that
 * is when the last one has no IDs. It is undefined for a tag that no generator has in memory, or whose refills work.
 */
export function endOf({ tag, buffers }, rates) {
  if (!buffers.some(({ state }) => state === "failing")) return undefined;
  const left = buffers.reduce((sum, buffer) => sum + buffer.left, 0);
  const rate = buffers.reduce((sum, buffer) => sum + (rates.of(tag, buffer.node) ?? buffer.rate ?? 0), 0);
  return { tag, left, rate, seconds: left === 0 ? 0 : rate > 0 ? left / rate : Infinity };
}

/** Ends is the list of tags whose IDs end soonest. It is there while refills fail. */
export class Ends {
  #list = new Keyed(byID("ends"), ({ tag }) => tag, () => new EndView());

  /** show takes the tags that are known, their rates, and how many fail at the generator with the most failing ones. */
  show(items, rates, failing) {
    const ends = items.map((item) => endOf(item, rates)).filter(Boolean).sort((a, b) => a.seconds - b.seconds || (a.tag < b.tag ? -1 : 1));
    byID("ends-part").hidden = ends.length === 0;
    this.#list.show(ends.slice(0, most));
    const all = Math.max(failing, ends.length);
    setNotice(byID("ends-note"), all > most ? `The first ${most} of ${counted(all, "tag")} that get no new IDs` : "");
  }
}

class EndView {
  #tag = element("span", { class: "end-tag" });
  #time = element("strong");
  #facts = element("span", { class: "quiet" });

  constructor() {
    this.element = element("li", { class: "end" }, this.#time, this.#tag, this.#facts);
  }

  update({ tag, left, rate, seconds }) {
    this.element.dataset.tag = tag;
    this.#time.className = `figure ${urgency(seconds)}`;
    setText(this.#time, seconds === 0 ? "empty" : Number.isFinite(seconds) ? duration(seconds) : "idle");
    setText(this.#tag, tag);
    this.#tag.title = tag;
    setText(this.#facts, seconds === 0 ? "" : `${count(left)} left at ${rateText(rate)}/s`);
  }
}
