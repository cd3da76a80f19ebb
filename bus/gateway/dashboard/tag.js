import { BufferView, left as leftText } from "./buffer.js";
import { element, Keyed, setNotice, setText } from "./dom.js";
import { count, id, rate as rateText } from "./number.js";

const opaqueText = (domain) => `IDs of ${domain.replace(/^d(.*)/, "$1 decimal digits").replace(/^\d+$/, "$& bits")} ` +
  "in no order; what stands here is about the numbers behind them";
const strictText = "IDs increase strictly over all generators";
const soon = 60; // seconds, which are red; more are amber

// The states of a tag, the worst first: a tag has the worst that it has at any generator.
const states = ["failing", "exhausted", "paused", "loading", "ok"];

// The figures of a row, in the order of their columns, and what they mean.
const figures = {
  "IDs/s": "IDs handed out in a second, by all generators",
  "Without the store": "how long the IDs in memory last if the store fails now, at the present rate",
  Left: "IDs in memory, of all generators",
  max_id: "where the next range begins, in the store",
  Step: "the least range that is reserved, in the store",
};

/** A Figure is a cell of a tag's row. Its name is the column's, which small screens show in the cell. */
class Figure {
  #name;
  #value = element("span", { class: "figure-value" });

  constructor([name, title]) {
    this.#name = element("span", { class: "figure-name" }, `${name} `);
    this.element = element("span", { class: "tag-figure", "data-name": name, title }, this.#name, this.#value);
  }

  set(text, style = "") {
    setText(this.#value, text);
    this.#name.hidden = text === "";
    this.#value.className = `figure-value ${style}`;
  }
}

/** A TagView is a row about one tag. It opens to show what each generator holds of it. */
export class TagView {
  #rates;
  #tag;
  #name = element("h3", { class: "tag-name" });
  #order = element("span", { class: "chip", hidden: "" });
  #state = element("span", { class: "state" });
  #description = element("p", { class: "tag-description", hidden: "" });
  #rules = element("p", { class: "tag-rules", title: "what an operator has set for this tag", hidden: "" });
  #problem = element("p", { class: "error", hidden: "" });
  #unused = element("p", { class: "quiet unused" }, "In no generator's memory: loaded when the first ID is taken.");
  #buffers;
  #figures = Object.entries(figures).map((figure) => new Figure(figure));

  constructor(rates) {
    this.#rates = rates;
    const buffers = element("ul", { class: "buffers" });
    this.#buffers = new Keyed(buffers, ({ buffer }) => buffer.node, () => new BufferView());
    this.element = element("details", { class: "tag" },
      element("summary", { class: "tag-row" },
        element("span", { class: "tag-title" }, this.#name, this.#order), this.#state,
        ...this.#figures.map((figure) => figure.element)),
      element("div", { class: "tag-body" },
        this.#problem,
        element("div", { class: "tag-about" }, this.#description, this.#rules),
        buffers, this.#unused));
    this.element.addEventListener("toggle", () => this.#fill());
  }

  /** update takes a tag: its record, where the store has one, and what generators hold of it. */
  update(tag) {
    this.#tag = tag;
    this.element.dataset.tag = tag.tag;
    setText(this.#name, tag.tag);
    this.#name.title = [tag.tag, tag.description].filter(Boolean).join(": ");
    const strict = [tag, ...tag.buffers].some(({ order }) => order === "strict");
    // A generator that has not loaded a tag yet does not know its order.
    if (strict) for (const buffer of tag.buffers) buffer.order = "strict";
    setNotice(this.#order, tag.opaque ? `opaque ${tag.opaque}` : strict ? "strict" : "");
    this.#order.title = tag.opaque ? opaqueText(tag.opaque) : strictText;
    const problem = tag.problem || (tag.stored || tag.unknown ? "" : "The store has no record of this tag.");
    setNotice(this.#problem, problem);
    this.#summarize(tag, strict, problem);
    this.#fill();
  }

  #summarize({ tag, paused, max_id: maxID, step, buffers }, strict, problem) {
    const state = states.find((one) => buffers.some((b) => b.state === one)) ?? (paused ? "paused" : "unused");
    this.#state.dataset.state = problem ? "unserved" : state;
    setText(this.#state, problem ? "not served" : state);
    const [rates, lasts, lefts, maxIDs, steps] = this.#figures;
    const rate = this.#rates.total(buffers, tag);
    const left = buffers.reduce((sum, buffer) => sum + buffer.left, 0);
    const failing = state === "failing";
    rates.set(buffers.length ? rateText(rate) : "");
    // Generators take IDs of each other, so a tag lasts until the last one has none.
    lasts.set(buffers.length && (!strict || failing) ? leftText(left, rate) : "", failing ? urgency(left, rate) : "");
    lefts.set(strict || buffers.length === 0 ? "" : count(left));
    maxIDs.set(maxID > 0 ? id(maxID) : "");
    steps.set(step ? count(step) : "");
  }

  /** fill shows what is below the row, which is not there for rows that nobody opens. */
  #fill() {
    if (!this.element.open) return this.#buffers.show([]);
    const { tag, description, buffers } = this.#tag;
    setNotice(this.#description, description);
    setNotice(this.#rules, rules(this.#tag));
    this.#unused.hidden = buffers.length > 0;
    this.#buffers.show(buffers.map((buffer) => ({ buffer, rate: this.#rates.of(buffer.node, tag) })));
  }
}

/** urgency is the class of the time that IDs last if no more come. */
function urgency(left, rate) {
  if (left === 0 || left / rate < soon) return "bad";
  return rate > 0 ? "warn" : "quiet";
}

/** rules are what an operator has set for a tag. */
const rules = ({ paused, quota, outlast, limit }) => [
  paused && "paused",
  quota && `quota ${count(quota.per_second)}/s, burst ${count(quota.burst)}`,
  outlast && `outlast ${outlast}`,
  limit && `limit ${id(limit)}`,
].filter(Boolean).join(", ");
