import { auditOf } from "./audit.js";
import { BufferView, lasts } from "./buffer.js";
import { element, Keyed, setNotice, setText } from "./dom.js";
import { count, id, rate as rateText } from "./number.js";
import { rules } from "./words.js";

const opaqueText = (domain) =>
  `IDs of ${domain.startsWith("d") ? `${domain.slice(1)} decimal digits` : `${domain} bits`} in no order; what stands here is about the numbers behind them`;
const orders = { trend: "IDs of each generator increase", strict: "IDs increase strictly over all generators" };

/** A Fact is a figure with its name. */
class Fact {
  #value = element("dd");

  constructor(name, meaning) {
    this.element = element("div", { title: meaning }, element("dt", {}, name), this.#value);
  }

  set(text) {
    setText(this.#value, text);
    this.element.hidden = text === "";
  }
}

/** A TagView is one tag with what each generator holds of it. */
export class TagView {
  #name = element("h3", { class: "tag-name" });
  #description = element("p", { class: "tag-description", hidden: "" });
  #rules = element("p", { class: "tag-rules quiet", title: "what an operator has set for this tag", hidden: "" });
  #audit = element("a", { class: "tag-audit" }, "Audit");
  #order = element("span", { class: "chip", hidden: "" });
  #problem = element("p", { class: "error", hidden: "" });
  #unused = element("p", { class: "quiet unused" }, "In no generator's memory: loaded when the first ID is taken.");
  #buffers;
  #facts = {
    rate: new Fact("IDs/s", "IDs handed out in a second, by all generators"),
    lasts: new Fact("Without the store", "how long the IDs in memory last if the store fails now, at the present rate, on the generator that runs dry first"),
    maxID: new Fact("max_id", "where the next range begins, in the store"),
    step: new Fact("Step", "the least range that is reserved, in the store"),
  };

  constructor() {
    const buffers = element("ul", { class: "buffers" });
    this.#buffers = new Keyed(buffers, (buffer) => buffer.node, () => new BufferView());
    this.element = element("article", { class: "tag" },
      element("div", { class: "tag-head" },
        this.#name, this.#description,
        element("dl", { class: "facts" }, ...Object.values(this.#facts).map((fact) => fact.element)),
        this.#rules,
        element("p", { class: "tag-links" }, this.#audit, this.#order)),
      element("div", { class: "tag-body" }, buffers, this.#unused, this.#problem));
  }

  /** update takes the tag's name, its buffers, and its record in the store where that is known. */
  update({ tag, record, buffers }) {
    this.element.dataset.tag = tag;
    setText(this.#name, tag);
    this.#name.title = tag;
    this.#audit.href = auditOf(tag);
    this.#audit.setAttribute("aria-label", `Audit ${tag}`);
    setNotice(this.#description, record?.description);
    setNotice(this.#rules, record && rules(record));
    const strict = [record, ...buffers].some((known) => known?.order === "strict");
    const order = strict ? "strict" : record?.order;
    if (strict) for (const buffer of buffers) buffer.order = "strict"; // a generator that has not loaded it yet does not know
    this.#buffers.show(buffers);
    this.#unused.hidden = buffers.length > 0;
    this.#facts.maxID.set(record?.max_id ? id(record.max_id) : "");
    this.#facts.step.set(record?.step ? count(record.step) : "");
    const opaque = record?.opaque;
    setNotice(this.#order, opaque ? `opaque ${opaque}` : orders[order] && `${order} order`);
    this.#order.title = opaque ? opaqueText(opaque) : orders[order] ?? "";
    this.#sum(strict);
    const lost = record && !record.stored && !record.unknown ? "The store has no record of this tag." : "";
    setNotice(this.#problem, record?.problem || lost);
  }

  #sum(strict) {
    const views = [...this.#buffers.views];
    const busy = views.filter((view) => view.rate > 0);
    const least = busy.toSorted((a, b) => a.left / a.rate - b.left / b.rate)[0];
    const known = views.filter((view) => view.rate !== null);
    const left = views.reduce((sum, view) => sum + view.left, 0);
    const total = known.length ? known.reduce((sum, view) => sum + view.rate, 0) : null;
    this.#facts.rate.set(views.length ? rateText(total) : "");
    this.#facts.lasts.set(strict || views.length === 0 ? "" : least ? lasts(least.left, least.rate) : lasts(left, total));
  }
}
