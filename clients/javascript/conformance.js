// Runs the calls of ../conformance.txt: node conformance.js REAL SCRIPTED, the URLs of NATS servers. REAL may have
// several, joined by commas.
// Each line of stdin is NUMBER SERVER VERB ARGUMENT..., with "within MS" at its end. The answer on stdout is
// NUMBER = ID..., or NUMBER ! REASON CODE MESSAGE.
import { createInterface } from "node:readline";
import { writeFileSync } from "node:fs";
import { connect } from "@nats-io/transport-node";
import { LeafClient } from "./index.js";

const reconnect = { maxReconnectAttempts: -1 };
const real = await Promise.all(process.argv[2].split(",").map((servers) => connect({ servers, ...reconnect })));
const scripted = await connect({ servers: process.argv[3], ...reconnect });
const clients = { real: new LeafClient(real) };
const pools = new Map();

/** A case with a script uses a new client. */
function reset() {
  clients.scripted = new LeafClient(scripted, { ids: "string" });
  pools.clear();
  return [];
}

function pool(server, tag, size) {
  const key = `${server} ${tag}`;
  if (!pools.has(key)) pools.set(key, clients[server].pool(tag, { size: Number(size) }));
  return pools.get(key);
}

const verbs = {
  next: (server, tag, options) => clients[server].next(tag, options),
  take: (server, tag, n, options) => clients[server].take(tag, Number(n), options),
  snowflake: (server, options) => clients[server].snowflake(options),
  snowflakes: (server, n, options) => clients[server].snowflakes(Number(n), options),
  pool: (server, tag, size, options) => pool(server, tag, size).next(options),
  decode: async (server, id, options) => {
    const d = await clients[server].decode(BigInt(id), options);
    return [d.id, d.time.getTime(), d.worker, d.sequence];
  },
  reset, load, calls: () => calls, end,
};

// Load: callers that take IDs of the tag order, and snowflakes, until the verb end writes them to a file.
let calls = 0, failed = 0, longest = 0, ended = false, callers = [];
const taken = [];

function load(server, ms) {
  const shared = clients.real.pool("order", { size: 20 }), options = { timeout: Number(ms) };
  const kinds = [
    () => clients.real.next("order", options), () => clients.real.next("order", options), () => shared.next(options),
    () => clients.real.take("order", 3, options), () => clients.real.snowflake(options),
  ];
  callers = kinds.map(async (take) => {
    while (!ended) {
      const began = performance.now();
      try {
        taken.push(...[await take()].flat());
      } catch (error) {
        failed++;
        console.error(error.message);
      }
      calls++;
      longest = Math.max(longest, performance.now() - began);
      await new Promise((resolve) => { setTimeout(resolve, 2); });
    }
  });
  return [];
}

async function end(server, file) {
  ended = true;
  await Promise.all(callers);
  writeFileSync(file, taken.join("\n"));
  return [calls, failed, Math.ceil(longest)];
}

for await (const line of createInterface({ input: process.stdin })) {
  const [number, server, verb, ...words] = line.split(" ");
  const options = words.at(-2) === "within" ? { timeout: Number(words.splice(-2)[1]) } : {};
  const run = async () => {
    const ids = [await verbs[verb](server, ...words, options)].flat();
    const type = server === "real" ? "bigint" : "string";
    if (["next", "take"].includes(verb) && ids.some((id) => typeof id !== type)) return `= an ID that is no ${type}`;
    return `= ${ids.join(" ")}`;
  };
  run().catch((e) => `! ${e.reason} ${e.code} ${e.message}`).then((answer) => console.log(`${number} ${answer}`));
}
process.exit(0);
