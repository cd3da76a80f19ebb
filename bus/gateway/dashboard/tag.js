import { BufferView } from "./buffer.js";
import { element, Keyed, setNotice, setText } from "./dom.js";
import { endOf, urgency } from "./ends.js";
import { count, id, rate as rateText } from "./number.js";
import { duration } from "./time.js";
import { rules } from "./words.js";

const opaqueText = (domain) =>
  `IDs of ${domain.startsWith("d") ? `${domain.slice(1)} decimal digits` : `${domain} bits`} in no order; what stands here is about the numbers behind them`;
const strictText = "IDs increase strictly over all generators";

// The states of a tag, the worst first: a tag has the worst that it has at any generator.
const states = ["failing", "exhausted", "paused", "loading", "ok"];

/** A Figure is a cell of a tag's row. Its name is the column's, which small screens show in the cell. */
class Figure {
  #name;
  #value = element("span", { class: "figure-value" });

  constructor(name) {
    this.#name = element("span", { class: "figure-name" }, `${name} `);
    this.element = element("span", { class: "tag-figure", "data-name": name }, this.#name, this.#value);
  }

  set(text, style = "", title = "") {
    setText(this.#value, text);
    this.#name.hidden = text === "";
    this.#value.className = `figure-value ${style}`;
    this.element.title = title;
  }
}

/** A TagView is a row about one tag. It opens to show what each generator holds of it. */
export class TagView {
  #rates;
  #item;
  #name = element("h3", { class: "tag-name" });
  #order = element("span", { class: "chip", hidden: "" });
  #state = element("span", { class: "state" });
  #description = element("p", { class: "tag-description", hidden: "" });
  #rules = element("p", { class: "tag-rules", title: "what an operator has set for this tag", hidden: "" });
  #problem = element("p", { class: "error", hidden: "" });
  #unused = element("p", { class: "quiet unused" }, "In no generator's memory: loaded when the first ID is taken.");
  #buffers;
  #figures = Object.fromEntries(["IDs/s", "Without the store", "Left", "max_id", "Step"].map((name) => [name, new Figure(name)]));

  constructor(rates) {
    this.#rates = rates;
    const buffers = element("ul", { class: "buffers" });
    this.#buffers = new Keyed(buffers, ({ buffer }) => buffer.node, () => new BufferView());
    this.element = element("details", { class: "tag" },
      element("summary", { class: "tag-row" },
        element("span", { class: "tag-title" }, this.#name, this.#order), this.#state,
        ...Object.values(this.#figures).map((figure) => figure.element)),
      element("div", { class: "tag-body" },
        this.#problem,
        element("div", { class: "tag-about" }, this.#description, this.#rules),
        buffers, this.#unused));
    this.element.addEventListener("toggle", () => this.#fill());
  }

  /** update takes the tag's name, its buffers, and its record in the store where that is known. */
  update(item) {
    this.#item = item;
    const { tag, record, buffers } = item;
    this.element.dataset.tag = tag;
    setText(this.#name, tag);
    this.#name.title = [tag, record?.description].filter(Boolean).join(": ");
    const strict = [record, ...buffers].some((known) => known?.order === "strict");
    if (strict) for (const buffer of buffers) buffer.order = "strict"; // a generator that has not loaded it yet does not know
    const opaque = record?.opaque;
    setNotice(this.#order, opaque ? `opaque ${opaque}` : strict ? "strict" : "");
    this.#order.title = opaque ? opaqueText(opaque) : strictText;
    const lost = record && !record.stored && !record.unknown ? "The store has no record of this tag." : "";
    const problem = record?.problem || lost;
    setNotice(this.#problem, problem);
    this.#summarize(item, strict, problem);
    if (this.element.open) this.#fill();
  }

  #summarize({ tag, record, buffers }, strict, problem) {
    const state = problem ? "not served" : states.find((one) => buffers.some((buffer) => buffer.state === one)) ?? "";
    this.#state.dataset.state = problem ? "unserved" : state || "unused";
    setText(this.#state, state || (record?.paused ? "paused" : "unused"));
    const { "IDs/s": rate, "Without the store": lasts, Left: left, max_id: maxID, Step: step } = this.#figures;
    rate.set(buffers.length ? rateText(this.#rates.total(tag, buffers)) : "", "", "IDs handed out in a second, by all generators");
    const ends = endOf({ tag, buffers }, this.#rates);
    const all = buffers.reduce((sum, buffer) => sum + buffer.left, 0);
    const meaning = "how long the IDs in memory last if the store fails now, at the present rate";
    if (strict && !ends || buffers.length === 0) lasts.set("");
    else if (ends) lasts.set(written(ends.seconds), urgency(ends.seconds), meaning);
    else lasts.set(written(all === 0 ? 0 : this.#first(tag, buffers)), "", `${meaning}, on the generator that runs dry first`);
    left.set(strict || buffers.length === 0 ? "" : count(all), "", "IDs in memory, of all generators");
    maxID.set(record?.max_id > 0 ? id(record.max_id) : "", "", "where the next range begins, in the store");
    step.set(record?.step ? count(record.step) : "", "", "the least range that is reserved, in the store");
  }

  /** first is after how many seconds the first generator has no IDs. */
  #first(tag, buffers) {
    const known = buffers.map((buffer) => [buffer.left, this.#rates.of(tag, buffer.node)]);
    if (known.every(([, rate]) => rate === null)) return NaN;
    return Math.min(...known.map(([left, rate]) => (rate > 0 ? left / rate : Infinity)));
  }

  /** fill shows what is below the row, which is not there for rows that nobody opens. */
  #fill() {
    if (!this.element.open) return this.#buffers.show([]);
    const { tag, record, buffers } = this.#item;
    setNotice(this.#description, record?.description);
    setNotice(this.#rules, record && rules(record));
    this.#unused.hidden = buffers.length > 0;
    this.#buffers.show(buffers.map((buffer) => ({ buffer, rate: this.#rates.of(tag, buffer.node) })));
  }
}

/** written is a time until there are no IDs; infinite: none are taken; NaN: it is not known. */
function written(seconds) {
  if (Number.isNaN(seconds)) return "–";
  if (seconds === 0) return "empty";
  return Number.isFinite(seconds) ? duration(seconds) : "idle";
}
