// It compiles if the types are right: npx tsc --noEmit --strict --module nodenext types.ts
import { connect } from "@nats-io/transport-node";
import { LeafClient, LeafError } from "./index.js";

const nc = await connect();
const numbers = new LeafClient(nc, { timeout: 500 });
const id: bigint = await numbers.next("order");
const ids: bigint[] = await numbers.take("order", 100, { timeout: 100 });
const text: string = await new LeafClient([nc, nc], { ids: "string" }).pool("order", { size: 10 }).next();
const worker: number = (await numbers.decode(id)).worker;
// @ts-expect-error: a bigint is no number
const rounded: number = await numbers.snowflake();
const reason: string = new LeafError().reason;
console.log(ids, text, worker, rounded, reason);
