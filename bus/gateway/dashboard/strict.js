import { element, setText } from "./dom.js";
import { count, rate } from "./number.js";
import { Meter } from "./rate.js";

/** A StrictView shows how a generator answers the requests for a strict tag: with one write for all that wait. */
export class StrictView {
  #writes = new Meter();
  #requests = new Meter();
  #shown = {};

  constructor() {
    const figure = (name, meaning) => {
      this.#shown[name] = element("dd");
      return element("div", { title: meaning }, element("dt", {}, name), this.#shown[name]);
    };
    this.element = element("dl", { class: "writes" },
      figure("Order", "IDs increase strictly over all generators, so none are kept in memory"),
      figure("Requests per write", "how many requests one write to the store answers"),
      figure("Mean wait", "of a request, until its IDs are written"),
      figure("Waiting", "requests that wait now"));
  }

  update({ writes = 0, requests = 0, wait_ms: wait, waiting }) {
    this.#writes.add(writes);
    this.#requests.add(requests);
    const recent = this.#writes.rate > 0 ? this.#requests.rate / this.#writes.rate : requests / writes;
    setText(this.#shown.Order, "strict");
    setText(this.#shown["Requests per write"], writes > 0 ? rate(recent) : "–");
    setText(this.#shown["Mean wait"], wait > 0 ? `${wait < 10 ? wait.toFixed(1) : count(wait)} ms` : "–");
    setText(this.#shown.Waiting, count(waiting));
  }
}
