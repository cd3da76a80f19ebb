// Numbers for people. IDs are strings in JSON and BigInts here: they pass 2^53.

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const tenths = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });
const short = new Intl.NumberFormat("en", { notation: "compact", minimumFractionDigits: 1, maximumFractionDigits: 1 });

/** count writes a whole number. */
export const count = (n) => whole.format(n);

/** id writes an ID, which is a decimal string. */
export const id = (text) => whole.format(BigInt(text));

/** rate writes how many there are in a second; null is not known. */
export function rate(n) {
  if (n === null) return "–";
  if (n >= 10_000_000) return short.format(n);
  return n >= 100 ? whole.format(n) : tenths.format(n);
}

/** counted writes a number and its noun. */
export const counted = (n, one, many = `${one}s`) => `${count(n)} ${n === 1 ? one : many}`;
