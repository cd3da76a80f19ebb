import { Budget, LeafError, call, now, silence } from "./call.js";

export { LeafError };

const TAG = /^(?=.{1,128}$)[A-Za-z0-9_=/-]+(\.[A-Za-z0-9_=/-]+)*$/;
const LINE = /^([1-9]\d{0,18})(?:-([1-9]\d{0,18}))?$/;
const LARGEST = 2n ** 63n - 1n;
// A request for several callers gets all its IDs or none. One of them alone may still get one.
const FOR_ONE = new Set(["batch_too_large", "quota_exceeded", "exhausted"]);

export class LeafClient {
  #connections;
  #first = 0; // of the connections: it brought the last answer
  #timeout;
  #id;
  #small = new Budget();
  #large = new Budget(); // of batches, which take longer
  #waiting = new Map(); // by subject: callers of next that wait for a request
  #busy = new Map(); // by subject: resolves when the request of next is answered or late

  constructor(connections, { timeout = 5000, ids = "bigint" } = {}) {
    this.#connections = [connections].flat();
    this.#timeout = timeout;
    this.#id = ids === "string" ? String : (id) => id;
  }

  async next(tag, { timeout = this.#timeout } = {}) {
    return this.#id(await this.#next(segment(tag), timeout));
  }

  async take(tag, count, { timeout = this.#timeout } = {}) {
    return (await this.#take(segment(tag), count, now() + timeout)).ids.map(this.#id);
  }

  async snowflake({ timeout = this.#timeout } = {}) {
    return this.#id(await this.#next("leaf.snowflake", timeout));
  }

  async snowflakes(count, { timeout = this.#timeout } = {}) {
    return (await this.#take("leaf.snowflake", count, now() + timeout)).ids.map(this.#id);
  }

  pool(tag, { size = 1000 } = {}) { return this.#pool(segment(tag), size); }

  snowflakePool({ size = 1000 } = {}) { return this.#pool("leaf.snowflake", size); }

  async decode(snowflake, { timeout = this.#timeout } = {}) {
    const until = now() + timeout;
    const read = (reply) => {
      const d = reply.json();
      return { id: this.#id(BigInt(d.id)), time: new Date(d.unix_ms), worker: d.worker, sequence: d.sequence };
    };
    return call(this.#small, (n, rest) => this.#send("leaf.decode", String(snowflake), n, rest, read), until);
  }

  #pool(subject, size) {
    return new LeafPool((until, state) => this.#take(subject, size, until, state), this.#timeout, this.#id);
  }

  /** Callers that come while a request is under way share the next one. */
  async #next(subject, timeout) {
    const until = now() + timeout;
    let batch = this.#waiting.get(subject);
    if (!batch) {
      batch = { callers: 0, until, urgent: until };
      this.#waiting.set(subject, batch);
      batch.ids = this.#serve(subject, batch);
    }
    const place = batch.callers++;
    batch.until = Math.max(batch.until, until);
    batch.urgent = Math.min(batch.urgent, until);
    try {
      return (await within(batch.ids, until, batch))[place];
    } catch (error) {
      if (batch.callers === 1 || !FOR_ONE.has(error.reason)) throw error;
      return (await this.#take(subject, 1, until)).ids[0];
    }
  }

  async #serve(subject, batch) {
    await this.#busy.get(subject);
    this.#waiting.delete(subject); // later callers need a later request, also because the tag may be strict
    const busy = new Promise((resolve) => { batch.late = resolve; });
    this.#busy.set(subject, busy);
    try {
      return (await this.#take(subject, batch.callers, batch.until, batch)).ids;
    } finally {
      batch.late();
      if (this.#busy.get(subject) === busy) this.#busy.delete(subject);
    }
  }

  async #take(subject, count, until, state) {
    if (!Number.isSafeInteger(count) || count < 1) throw new LeafError("bad_request", 400, `${count} is no count`);
    const strict = (reply) => reply.headers?.get("Leaf-Order") === "strict";
    const read = (reply) => ({ ids: parse(reply.string(), count), strict: strict(reply) });
    const send = (n, rest) => this.#send(subject, String(count), n, rest, read);
    return call(count > 1000 ? this.#large : this.#small, send, until, state);
  }

  /** Sends a request once, over the connections in turn. */
  async #send(subject, body, n, timeout, read) {
    const over = (this.#first + n) % this.#connections.length;
    let reply;
    try {
      reply = await this.#connections[over].request(subject, body, { timeout });
    } catch (error) {
      if (error.name === "TimeoutError") return undefined;
      const { message, cause } = error;
      if ([error, cause].some((e) => e?.name === "PermissionViolationError"))
        throw new LeafError("unauthorized", 403, message, { cause: error });
      if (this.#connections.every((c) => c.isClosed())) throw new LeafError("closed", 503, message, { cause: error });
      throw new LeafError("unreachable", 503, `no generator answers ${subject}: ${message}`, { cause: error });
    }
    this.#first = over;
    const code = reply.headers?.get("Nats-Service-Error-Code");
    if (!code) return read(reply);
    const text = reply.headers.get("Nats-Service-Error");
    let problem = {};
    try {
      problem = reply.json();
    } catch {} // it is not of Leafbus
    throw new LeafError(problem.reason ?? "internal", Number(code), text, { retryAfter: problem.retry_after_ms ?? 0 });
  }
}

const URGENT = 500; // ms that callers of a pool are supposed to have. So the fetch is sent again often enough

class LeafPool {
  #fetch;
  #timeout;
  #id;
  #ids = [];
  #at = 0;
  #low = 0; // more are fetched when no more than these are left
  #fetching; // resolves to an error, or to undefined
  #state; // of the fetch
  #strict; // the error of a strict tag

  constructor(fetch, timeout, id) {
    this.#fetch = fetch;
    this.#timeout = timeout;
    this.#id = id;
  }

  async next({ timeout = this.#timeout } = {}) {
    const until = now() + timeout;
    for (let fails = 0; ;) {
      if (this.#strict) throw this.#strict;
      if (this.#ids.length - this.#at <= this.#low) this.#fetching ??= this.#more();
      if (this.#at < this.#ids.length) return this.#id(this.#ids[this.#at++]);
      const error = await within(this.#fetching, until, this.#state);
      // The first fetch may have begun long before the call. The next one helps if there is time for it.
      if (error && (!error.mayPass || ++fails > 1 || now() >= until)) throw error;
    }
  }

  async #more() {
    this.#state = { urgent: now() + URGENT };
    try {
      const { ids, strict } = await this.#fetch(now() + this.#timeout, this.#state);
      if (strict) throw this.#strict = new LeafError("bad_request", 400, "a pool would break a strict tag's order");
      this.#ids = this.#ids.slice(this.#at).concat(ids);
      this.#at = 0;
      this.#low = Math.floor(ids.length / 2);
      return undefined;
    } catch (error) {
      this.#low = Math.floor((this.#ids.length - this.#at) / 2); // not every call asks while that cannot help
      return error;
    } finally {
      this.#fetching = undefined;
    }
  }
}

/** The subject of a tag. */
function segment(tag) {
  if (!TAG.test(tag)) throw new LeafError("bad_tag", 400, `${JSON.stringify(tag)} is no tag`);
  return `leaf.segment.${tag}`;
}

/** Reads exactly `count` IDs. Anything else is an error, because a misread ID may belong to another caller. */
function parse(text, count) {
  const ids = [];
  for (const line of text.split("\n")) {
    const [, first, last] = LINE.exec(line) ?? [];
    let id = BigInt(first ?? 0);
    const end = BigInt(last ?? id);
    const wrong = id === 0n || end > LARGEST || (last !== undefined && end <= id);
    if (wrong || end - id >= BigInt(count - ids.length)) throw unreadable(text);
    for (; id <= end; id++) ids.push(id);
  }
  if (ids.length !== count) throw unreadable(text);
  return ids;
}

function unreadable(text) {
  const shown = JSON.stringify(text.slice(0, 80));
  return new LeafError("internal", 500, `these are not the IDs that were asked for: ${shown}`);
}

/** What a promise resolves to, if that is in time. Else the state of the call says why not. */
async function within(promise, until, state) {
  let timer;
  const expired = new Promise((_, reject) => {
    timer = setTimeout(() => reject(state.why ?? silence(state)), Math.max(0, until - now()));
  });
  try {
    return await Promise.race([promise, expired]);
  } finally {
    clearTimeout(timer);
  }
}
