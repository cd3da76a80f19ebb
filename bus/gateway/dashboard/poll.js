const patience = 10_000; // ms that an answer may take

/** NoAnswer is the failure of a request that nobody answered. */
class NoAnswer extends Error {}

/** refusal is what the generator said in place of an answer; that there was none is the verdict's to say. */
export const refusal = (error) => (error instanceof NoAnswer ? "" : error.message);

/** ask returns the JSON at path; what goes wrong is an Error with a sentence for people. */
async function ask(path, signal) {
  // Not relative to a page whose address has the token in it: fetch refuses such addresses.
  const response = await fetch(new URL(path, location.origin + location.pathname), {
    credentials: "same-origin",
    headers: { Accept: "application/json" },
    signal: AbortSignal.any([signal, AbortSignal.timeout(patience)]),
  }).catch((error) => {
    throw signal.aborted ? error : new NoAnswer("The generator does not answer", { cause: error });
  });
  const body = await response.json().catch(() => ({}));
  if (!response.ok) throw new Error(body.message || `The generator answers with the status ${response.status}`);
  return body;
}

/**
 * Poll asks for the same thing again and again while the page is visible: one
 * request at a time, and with growing pauses after failures.
 */
export class Poll {
  #path;
  #onAnswer;
  #onFailure;
  #request; // an AbortController, while one is under way
  #timer;
  #failures = 0;

  /** path returns what to ask for. */
  constructor({ path, onAnswer, onFailure = () => {} }) {
    this.#path = path;
    this.#onAnswer = onAnswer;
    this.#onFailure = onFailure;
    document.addEventListener("visibilitychange", () => {
      if (document.hidden) this.#halt();
      else this.start();
    });
  }

  /** start asks at once, in place of a request that is under way. */
  start() {
    this.#halt();
    if (!document.hidden) this.#ask();
  }

  #halt() {
    clearTimeout(this.#timer);
    this.#request?.abort();
    this.#request = undefined;
  }

  async #ask() {
    const request = new AbortController();
    this.#request = request;
    let answer, failure;
    try {
      answer = await ask(this.#path(), request.signal);
    } catch (error) {
      failure = error;
    }
    if (this.#request !== request) return; // halted, or another has taken its place
    this.#request = undefined;
    this.#failures = failure ? this.#failures + 1 : 0;
    const pause = 1000 * Math.min(Math.max(this.#failures, 1), 5);
    this.#timer = setTimeout(() => this.#ask(), pause);
    if (failure) this.#onFailure(failure);
    else this.#onAnswer(answer);
  }
}
