/** What the client needs of a NatsConnection of nats.js 3, with any transport. */
export interface Connection {
  request(subject: string, data: string, options: { timeout: number }): Promise<unknown>;
  isClosed(): boolean;
}

/** No ID came. The message says why. */
export class LeafError extends Error {
  /** A stable word: see the table in docs/clients.md. `timed_out`, `unreachable`, `unauthorized` and `closed` may also
   * come from the client: no answer in time, no generator, a missing permission, a closed connection. */
  readonly reason: string;
  /** As in HTTP. */
  readonly code: number;
  /** A hint, in milliseconds; 0: none. */
  readonly retryAfter: number;
  /** The client sends the request again until the timeout. */
  readonly mayPass: boolean;
}

export interface ClientOptions<T> {
  /** Of a call, in milliseconds, unless the call has its own; 5,000. */
  timeout?: number;
  /** What IDs are: `"bigint"`, or `"string"` for JSON. A `number` would round those above 2^53. */
  ids?: T;
}

export interface CallOptions {
  /** In milliseconds. After it the call throws a LeafError. */
  timeout?: number;
}

export interface PoolOptions {
  /** How many IDs one request fetches; 1,000. At least as many as are used in a second. */
  size?: number;
}

export interface Decoded<ID> {
  id: ID;
  time: Date;
  worker: number;
  sequence: number;
}

/** IDs that were fetched ahead. While no generator answers, calls get those in memory. Not for strict tags. */
export interface LeafPool<ID = bigint> {
  next(options?: CallOptions): Promise<ID>;
}

/** IDs over NATS. Share one client in a process. All calls throw LeafError. */
export interface LeafClient<ID = bigint> {
  /** One ID of a tag. Callers that come while a request is under way share the next one. */
  next(tag: string, options?: CallOptions): Promise<ID>;
  /** That many IDs, with one request. */
  take(tag: string, count: number, options?: CallOptions): Promise<ID[]>;
  snowflake(options?: CallOptions): Promise<ID>;
  snowflakes(count: number, options?: CallOptions): Promise<ID[]>;
  pool(tag: string, options?: PoolOptions): LeafPool<ID>;
  /** The time of these is that of the request which fetched them. */
  snowflakePool(options?: PoolOptions): LeafPool<ID>;
  decode(snowflake: bigint | string, options?: CallOptions): Promise<Decoded<ID>>;
}

export const LeafClient: {
  /** With several connections, to different servers, a request without an answer is sent again over the next one. */
  new (connections: Connection | Connection[], options?: ClientOptions<"bigint">): LeafClient<bigint>;
  new (connections: Connection | Connection[], options: ClientOptions<"string">): LeafClient<string>;
};
