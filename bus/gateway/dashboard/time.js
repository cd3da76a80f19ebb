// Times by the clock of the generator that serves the page: the browser's own
// may be wrong, and "3 min ago" with it.

import { setText } from "./dom.js";

let offset = 0; // of the generator's clock, ms

/** setNow takes over the generator's clock, Unix ms. */
export const setNow = (ms) => { offset = ms - Date.now(); };

/** now is the time by the generator's clock, Unix ms. */
export const now = () => Date.now() + offset;

const units = [["y", 365 * 86_400], ["d", 86_400], ["h", 3_600], ["min", 60]];

/** duration writes seconds in one unit, or two (parts) where the first is small. */
export function duration(seconds, parts = 2) {
  if (seconds > 100 * 365 * 86_400) return "> 100 y";
  if (seconds > 0 && seconds < 1) return "< 1 s";
  for (const [i, [unit, size]] of units.entries()) {
    if (seconds < size) continue;
    const n = Math.floor(seconds / size);
    const [lesser, lesserSize] = units[i + 1] ?? ["s", 1];
    const rest = Math.floor((seconds % size) / lesserSize);
    return parts > 1 && n < 10 && rest > 0 ? `${n} ${unit} ${rest} ${lesser}` : `${n} ${unit}`;
  }
  return `${Math.floor(seconds)} s`;
}

/** relative writes a time, Unix ms, as it is seen from now. */
export function relative(ms) {
  const seconds = Math.round((now() - ms) / 1000);
  if (seconds === 0) return "now";
  return seconds > 0 ? `${duration(seconds, 1)} ago` : `in ${duration(-seconds, 1)}`;
}

/** local writes a time in full, in the browser's time zone. Swedes write it as RFC 3339 does, but for the zone. */
export const local = (ms) => new Date(ms).toLocaleString("sv");

/** moment writes a local time as short as it is clear: without the day if that is today. {@link zone} has its zone. */
export function moment(ms) {
  const [day, time] = local(ms).split(" ");
  return local(now()).startsWith(day) ? time : `${day.slice(5)} ${time.slice(0, 5)}`;
}

/** zone names the zone of the times on this page. */
export function zone() {
  const [, offset] = new Date(now()).toLocaleString("en", { timeZoneName: "longOffset" }).split("GMT");
  return `Times in UTC${offset === "+00:00" ? "" : `${offset}, ${Intl.DateTimeFormat().resolvedOptions().timeZone}`}`;
}

/** setTime fills a <time>: relative or by write, with the full time as its title. */
export function setTime(target, ms, write = relative) {
  setText(target, write(ms));
  const iso = new Date(ms).toISOString();
  if (target.dateTime === iso) return;
  target.dateTime = iso;
  target.title = local(ms);
}
