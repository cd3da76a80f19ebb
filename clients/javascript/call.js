// A call: it sends its request, and again while there is no answer. The first answer counts.

const LEAST_DELAY = 10, FIRST_DELAY = 100; // ms: when an answer is late at the earliest, and before there are answers
const SILENCE = 1000; // ms: an answer that takes longer comes from a generator that was frozen or cut off
const LEAST_GAP = 20, MOST_GAP = 4000; // ms: bounds of a fifth of the time that a call has
const FIRST_PAUSE = 20, LAST_PAUSE = 1000; // ms: after a refusal
const MOST_RESENDS = 8;
const MOST_TOKENS = 8, MOST_DEBT = 100, TOKENS_A_CALL = 0.01;
const CALLS_A_RESEND = 2, FREE_RESENDS = 100; // in a second

const MAY_PASS = new Set([
  "draining", "overloaded", "store_unavailable", "timed_out", "clock_backwards", "no_worker_id", "quota_exceeded",
  "unreachable",
]);

export const silence = ({ sent = 0 }) => new LeafError("timed_out", 504, `no answer in time to ${sent} requests`);
export const now = () => performance.now();

export class LeafError extends Error {
  constructor(reason, code, message, { retryAfter = 0, cause } = {}) {
    super(`${reason}: ${message}`, { cause });
    this.name = "LeafError";
    this.reason = reason;
    this.code = code;
    this.retryAfter = retryAfter;
  }

  get mayPass() { return MAY_PASS.has(this.reason); }
}

/** Bounds the resends of a client, and knows when an answer is late. */
export class Budget {
  delay = FIRST_DELAY; // 999 of 1,000 answers come sooner
  #answers = 0;
  #raised = 0;
  #tokens = 1;
  #quiet = 0;
  #second = 0;
  #calls = 0; // in this second
  #before = 0; // in the one before it
  #resends = 0;

  /** An answer that was late makes the delay longer. Requests that wait at the same time do that once. */
  answered(sent, at) {
    const took = at - sent;
    if (took > this.delay) {
      if (sent >= this.#raised && took < SILENCE) {
        this.delay *= 1.25;
        this.#raised = at;
      }
    } else {
      this.delay = Math.max(LEAST_DELAY, this.delay * (1 - 1 / (this.#answers < 100 ? 32 : 4480)));
    }
    this.#answers++;
  }

  called(at) {
    this.#turn(at);
    this.#calls++;
    this.#tokens = Math.min(this.#tokens + TOKENS_A_CALL, MOST_TOKENS);
  }

  /** Says whether a request may be sent again, and counts it. */
  resend(at) {
    this.#turn(at);
    const most = (this.#calls + this.#before) / CALLS_A_RESEND + FREE_RESENDS;
    if (this.#tokens <= 0 || at < this.#quiet || this.#resends >= most) return false;
    this.#resends++;
    return true;
  }

  /** Resends were not needed: the first request was answered, too. */
  pay(resends) { this.#tokens = Math.max(this.#tokens - resends, -MOST_DEBT); }

  /** No resends for a moment: generators are overloaded, or there is none. */
  calm(at) { this.#quiet = at + this.delay; }

  #turn(at) {
    const second = Math.floor(at / 1000);
    if (second <= this.#second) return;
    this.#before = second === this.#second + 1 ? this.#calls : 0;
    this.#calls = this.#resends = 0;
    this.#second = second;
  }
}

/**
 * Sends a request until there is an answer, a retry cannot help, or it is `until`.
 * `send(n, timeout)` sends it for the nth time. It returns the answer, or undefined if none comes, or throws a
 * LeafError.
 * `state.urgent` is when the first of several callers leaves. `state.late` is called if the answer is late.
 * `state.why` becomes why there was no answer so far: a refusal says more than silence. `state.sent` counts requests.
 */
export async function call(budget, send, until, state = {}) {
  const { urgent = until, late = () => {} } = state;
  let gap = Math.min(Math.max((urgent - now()) / 5, LEAST_GAP), MOST_GAP);
  const arrived = [];
  let wake = () => {};
  let resends = 0, pause = FIRST_PAUSE, paused = false;
  let sendAt = now(), lateAt = Infinity;
  let firstAnswered = false, ended = 0;
  budget.called(sendAt);
  state.sent = 0;

  const go = (at) => {
    const first = state.sent === 0;
    lateAt = at + budget.delay;
    const answer = send(state.sent++, Math.max(until - at, SILENCE));
    answer.then((value) => ({ value }), (error) => ({ error })).then((a) => {
      const came = now();
      if (a.value === undefined && !a.error) return; // silence
      if (!a.error) budget.answered(at, came);
      if (first) {
        firstAnswered = true;
        if (ended && came - ended < SILENCE) budget.pay(resends);
      }
      arrived.push(a);
      wake();
    });
  };

  try {
    for (;;) {
      const at = now();
      if (at >= until) throw state.why ?? silence(state);
      if (at >= sendAt) {
        if (state.sent > 0) late();
        paused = false;
        if (at > urgent) gap = Math.min(2 * gap, MOST_GAP);
        sendAt = at + gap;
        go(at);
      } else if (at >= lateAt) {
        late();
        lateAt = resends < MOST_RESENDS ? at + budget.delay : Infinity;
        if (resends < MOST_RESENDS && budget.resend(at)) {
          resends++;
          go(at);
        }
      }
      if (arrived.length === 0) {
        let timer;
        await new Promise((resolve) => {
          wake = resolve;
          timer = setTimeout(resolve, Math.max(1, Math.min(sendAt, lateAt, until) - now()));
        });
        clearTimeout(timer);
      }
      const a = arrived.shift();
      if (a === undefined) continue;
      if (!a.error) return a.value;
      const { error } = a;
      const wait = error.retryAfter;
      if (!(error instanceof LeafError) || !error.mayPass) throw error;
      if (error.reason === "quota_exceeded" && (wait === 0 || now() + wait >= until)) throw error;
      state.why = error;
      if (["unreachable", "overloaded", "quota_exceeded"].includes(error.reason)) budget.calm(now());
      if (paused) continue;
      paused = true;
      sendAt = now() + Math.max(pause, Math.min(wait, LAST_PAUSE)) * (1 + Math.random() / 2);
      pause = Math.min(2 * pause, LAST_PAUSE);
      lateAt = Infinity;
    }
  } finally {
    ended = now();
    if (firstAnswered) budget.pay(resends);
  }
}
