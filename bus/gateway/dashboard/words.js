// Words about events and rules.

import { count, id } from "./number.js";
import { duration, local } from "./time.js";

const longAgo = 1e11; // before every Unix time in ms of an event, and above every duration: 1973

/** facts are the fields of a body, as leaf events prints them: without the key, the generator and its configuration. */
function facts(key, name, value) {
  if (value === null || value === key || name === "node" || name === "config") return [];
  if (typeof value === "object") return Object.entries(value).flatMap(([inner, v]) => facts(key, name ? `${name}.${inner}` : inner, v));
  if (!name.endsWith("_ms")) return [`${name}=${value}`];
  return [`${name.slice(0, -3)}=${value > longAgo ? local(value) : value < 1000 ? `${count(value)} ms` : duration(value / 1000)}`];
}

/** text says what happened, beside the type and the key. */
export const text = ({ key, body }) => facts(key, "", body ?? {}).join(" ");

/** title is the kind of an event in words: "segment starved". */
export const title = ({ type }) => type.replace(/^leaf\./, "").replace(/[._]/g, " ");

/** rules are what an operator has set for a tag. */
export const rules = ({ paused, quota, outlast, limit }) => [
  paused && "paused",
  quota && `quota ${count(quota.per_second)}/s, burst ${count(quota.burst)}`,
  outlast && `outlast ${outlast}`,
  limit && `limit ${id(limit)}`,
].filter(Boolean).join(", ");
