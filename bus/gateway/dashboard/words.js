// Sentences about events, made from their bodies.

import { count, counted, id } from "./number.js";
import { duration, local } from "./time.js";

export const name = (event) => event.type.replace(/^leaf\./, "");

const millis = (ms) => (ms < 1000 ? `${count(ms)} ms` : duration(ms / 1000));

const left = (n) => (n > 0 ? `${counted(n, "ID")} left then` : "no IDs in memory"); // a strict tag never has any

function clockSkewed({ now_ms, recorded_ms, peers_ms }) {
  const off = now_ms - (recorded_ms || peers_ms);
  const than = recorded_ms ? "its own last time" : "the clocks of the other generators";
  return `its clock is ${millis(Math.abs(off))} ${off > 0 ? "ahead of" : "behind"} ${than}`;
}

/** regressed is about a store that went backwards. An operator must act only if two generators held one range. */
function regressed({ got, seen, action, first, last }) {
  const what = `the store went backwards: it offered IDs from ${id(got)}, and all below ${id(seen)} are in use.`;
  if (action === "advanced") return `${what} max_id was moved up, and service goes on. Find out why it went backwards`;
  return `${what} Two generators held one range: IDs from ${id(first)} to ${id(last)} may come twice. Look for them in your data`;
}

const reserved = (body) => `reserved until ${local(body.reserved_until_ms)}`;

/** rules are what an operator has set for a tag. */
export const rules = ({ paused, quota, outlast, limit }) => [
  paused && "paused",
  quota && `quota ${count(quota.per_second)}/s, burst ${count(quota.burst)}`,
  outlast && `outlast ${outlast}`,
  limit && `limit ${id(limit)}`,
].filter(Boolean).join(", ");

const record = (body) => [
  body.order === "strict" && "order strict",
  body.opaque && `opaque ${body.opaque}`,
  body.step && `step ${count(body.step)}`,
  body.max_id && `max_id ${id(body.max_id)}`,
  rules(body),
  body.description,
].filter(Boolean).join(", ");

// texts tells of each kind of event what its type and key do not.
const texts = {
  "segment.refill": (b) =>
    `${id(b.first)} – ${id(b.last)} reserved (${counted(Number(BigInt(b.last) - BigInt(b.first) + 1n), "ID")}, ${b.cause}, ${b.elapsed_ms.toFixed(1)} ms)`,
  "segment.refill_failed": (b) => `refills fail (${b.error}), ${left(b.left)}`,
  "segment.starved": (b) => `requests are refused: no IDs in memory, ${counted(b.waiting, "request")} waited in vain`,
  "segment.regressed": regressed,
  "segment.ending": (b) => `80 % of the IDs up to ${id(b.limit)} are reserved, ${count(b.left)} are not. Raise the limit, or use another tag`,
  "segment.recovered": (b) => `${b.episode.replace("_", " ")} is over`,
  "tag.shadowed": (b) => b.error,
  "tag.damaged": (b) => `nothing more is reserved: ${b.error}`,
  "tag.recovered": (b) => (b.episode === "shadowed" ? "no row of leaf_alloc has the name of this tag any more" : "its record can be read again"),
  "nats.degraded": (b) => `NATS is degraded: ${b.cause}`,
  "records.unavailable": (b) => `JetStream lost records, or their bucket was changed: ${b.error}`,
  "records.recovered": () => "the records are there again",
  "registry.unavailable": (b) => `the registry of workers does not answer: ${b.error}`,
  "registry.recovered": () => "the registry of workers answers again",
  "nats.recovered": () => "NATS is degraded no more",
  "clock.backwards": (b) =>
    `its clock is ${millis(b.offset_ms)} behind its last snowflake; requests ${b.action === "waited" ? "wait" : "are refused"}`,
  "clock.skewed": clockSkewed,
  "clock.recovered": (b) => `${b.episode} is over`,
  "worker.acquired": (b) => `taken, ${reserved(b)}`,
  "worker.released": () => "given up",
  "worker.lost": () => "its record is gone or another's; the generator takes another worker",
  "worker.expiring": (b) => `the registry does not answer; no more snowflakes from ${local(b.reserved_until_ms)} on`,
  "worker.ending": (b) => `the layout of snowflakes ends at ${local(b.end_ms)}`,
  "worker.recovered": (b) => `${b.episode} is over`,
  "tag.created": record,
  "tag.updated": record,
  "tag.deleted": record,
  "node.started": (b) => `${b.version} at ${b.address}`,
  "node.stale": (b) => `it was cut off, and the store does not say which max_id operators have set: it may hand out IDs below (${b.error})`,
  "node.lost": (b) => `the other generators have not heard it since ${local(b.last_heard_ms)}, and it did not report that it ends. ` +
    `Start it again. If it does not return, the alert ends at ${local(b.until_ms)}`,
  "node.recovered": (b) => (b.episode === "lost" ? "it returned, or what it reserved is over" : `${b.episode} is over`),
  "node.stopped": (b) => `${b.version} at ${b.address}`,
};

/** text says what happened. A body of a newer generator may be another: it is shown as it is. */
export function text(event) {
  try {
    return texts[name(event)](event.body);
  } catch {
    return JSON.stringify(event.body ?? {});
  }
}

/** title is the kind of an event in words: "segment starved". */
export const title = (event) => name(event).replace(/[._]/g, " ");
