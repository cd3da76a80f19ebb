import { element, setText } from "./dom.js";
import { count, id } from "./number.js";

/** A SegmentView draws one segment: what is used of it, the position and what remains. */
export class SegmentView {
  #position = element("span", { class: "label" });
  #first = element("span");
  #last = element("span");
  #bar = element("div", { class: "bar", "aria-hidden": "true" },
    element("span", { class: "used" }), element("span", { class: "mark" }));

  constructor() {
    this.element = element("div", { class: "segment" },
      element("div", { class: "track" }, element("span", { class: "carrier" }, this.#position)),
      this.#bar,
      element("div", { class: "range" }, this.#first, element("span", { class: "unseen" }, " to "), this.#last));
  }

  update({ first, last, next, standby }) {
    const size = BigInt(last) - BigInt(first) + 1n;
    const used = BigInt(next) - BigInt(first);
    const position = Number((used * 100_000n) / size) / 100_000;
    const { dataset, style, classList } = this.element;
    Object.assign(dataset, { first, last, next });
    classList.toggle("standby", standby);
    style.setProperty("--position", position);
    setText(this.#first, id(first));
    setText(this.#last, id(last));
    setText(this.#position, words(used, size, next, standby));
    this.#bar.title = `${count(used)} of ${count(size)} IDs used`;
  }
}

function words(used, size, next, standby) {
  if (used === size) return "used up";
  return standby && used === 0n ? "next, loaded" : `at ${id(next)}`;
}

/** An EmptyView stands where no segment is, and says why. */
export class EmptyView {
  #bar = element("div", { class: "bar" });

  constructor() {
    this.element = element("div", { class: "segment-empty" }, this.#bar);
  }

  update({ text }) {
    setText(this.#bar, text);
  }
}
