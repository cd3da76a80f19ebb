import { byID, element } from "./dom.js";
import { ask } from "./poll.js";
import { count } from "./number.js";
import { local, utc } from "./time.js";

/** Decode is the form that takes a snowflake apart. */
export class Decode {
  #input = byID("decode-id");
  #result = byID("decode-result");
  #request;

  constructor() {
    byID("decode").noValidate = true; // what is wrong is said in the result
    byID("decode").addEventListener("submit", (event) => {
      event.preventDefault();
      this.#decode(this.#input.value.trim());
    });
  }

  async #decode(id) {
    this.#input.value = id;
    this.#request?.abort();
    if (!/^\d{1,20}$/.test(id)) return this.#fail("A snowflake is a number of up to 19 digits.");
    const request = new AbortController();
    this.#request = request;
    try {
      const answer = await ask(`decodeSnowflakeId?snowflakeId=${id}`, request.signal);
      if (answer.errorMsg) this.#fail(answer.errorMsg);
      else this.#show(answer);
    } catch (error) {
      if (!request.signal.aborted) this.#fail(`${error.message}.`);
    }
  }

  #show({ workerId, sequenceId, timestamp }) {
    const ms = Number.parseInt(timestamp, 10); // the text behind it is that time in words
    const facts = [
      ["Worker", workerId],
      ["Sequence", count(BigInt(sequenceId))],
      ["Time here", local(ms)],
      ["Time UTC", utc(ms)],
      ["Unix ms", String(ms)],
    ];
    this.#answer("good", ...facts.map(([name, value]) =>
      element("span", { class: "fact" }, element("span", { class: "fact-name" }, `${name} `), element("strong", {}, value), " ")));
  }

  #fail(message) {
    this.#answer("bad", message);
  }

  #answer(state, ...children) {
    this.#result.dataset.state = state;
    this.#input.setAttribute("aria-invalid", String(state === "bad"));
    this.#result.replaceChildren(...children);
  }
}
