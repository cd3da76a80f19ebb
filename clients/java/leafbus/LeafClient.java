package leafbus;

import java.io.IOException;
import java.net.URI;
import java.net.URLEncoder;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.net.http.HttpTimeoutException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.Instant;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * 64-bit IDs of Leafbus, over HTTP, with the JDK alone (11 or later). Share one client among all threads:
 *   LeafClient leaf = new LeafClient(Duration.ofMillis(500), null, "http://leaf1:8080", "http://leaf2:8080");
 *   long id = leaf.next("order");
 */
public final class LeafClient {
    private static final HttpClient HTTP = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).build();
    private static final ExecutorService BACKGROUND = Executors.newCachedThreadPool(task -> {
        Thread thread = new Thread(task, "leafbus");
        thread.setDaemon(true);
        return thread;
    });
    private static final Pattern TAG = Pattern.compile("(?=.{1,128}$)[A-Za-z0-9_=/-]+(\\.[A-Za-z0-9_=/-]+)*");
    private static final Pattern HEAD = Pattern.compile("\\{\"count\":\\d+,\"ranges\":\\[");
    private static final Pattern RANGE =
            Pattern.compile("\\G,?\\{\"first\":\"([1-9]\\d{0,18})\",\"last\":\"([1-9]\\d{0,18})\"\\}");
    private static final Pattern DECODED = Pattern.compile(
            "\\{\"workerId\":\"(\\d+)\",\"sequenceId\":\"(\\d+)\",\"timestamp\":\"(\\d+)\\(.*");
    private static final Pattern REASON = Pattern.compile("\"reason\":\"(\\w+)\"");
    private static final Pattern DETAIL = Pattern.compile("\"detail\":\"((?:[^\"\\\\]|\\\\.)*)\"");
    private static final Pattern RETRY_AFTER = Pattern.compile("\"retry_after_ms\":(\\d+)");
    // A request for several callers gets all its IDs or none. One of them alone may still get one.
    private static final Set<String> FOR_ONE = Set.of("batch_too_large", "quota_exceeded", "exhausted");
    private static final long MS = 1_000_000; // times are in nanoseconds
    private static final long URGENT = 500 * MS; // the time that callers of a pool are supposed to have

    private final String[] servers;
    private final String token;
    private final long timeout;
    private final Budget small = new Budget(), large = new Budget(); // large batches take longer
    private volatile int first; // of the servers: it gave the last answer

    // By path. Both are guarded by waiting:
    private final Map<String, Batch> waiting = new HashMap<>(); // callers of next that wait for a request
    private final Map<String, CompletableFuture<Void>> busy = new HashMap<>(); // its request is answered or late

    /** Calls end within 5 s. */
    public LeafClient(String... servers) { this(Duration.ofSeconds(5), null, servers); }

    /** Calls end within the timeout, unless they have their own. Without --http-token the token is null. */
    public LeafClient(Duration timeout, String token, String... servers) {
        if (servers.length == 0) throw new IllegalArgumentException("LeafClient needs the URL of a generator");
        this.timeout = timeout.toNanos();
        this.token = token;
        this.servers = servers.clone();
        first = ThreadLocalRandom.current().nextInt(servers.length); // spreads the load
    }

    /** An ID of a tag. Threads that come while a request is under way share the next one. */
    public long next(String tag) throws LeafException, InterruptedException { return one(path(tag), timeout); }

    public long next(String tag, Duration timeout) throws LeafException, InterruptedException {
        return one(path(tag), timeout.toNanos());
    }

    /** n IDs, with one request. */
    public long[] take(String tag, int n) throws LeafException, InterruptedException {
        return take(path(tag), n, new State(timeout)).ids;
    }

    public long[] take(String tag, int n, Duration timeout) throws LeafException, InterruptedException {
        return take(path(tag), n, new State(timeout.toNanos())).ids;
    }

    public long snowflake() throws LeafException, InterruptedException { return one("/v1/snowflakes", timeout); }

    public long snowflake(Duration timeout) throws LeafException, InterruptedException {
        return one("/v1/snowflakes", timeout.toNanos());
    }

    public long[] snowflakes(int n) throws LeafException, InterruptedException {
        return take("/v1/snowflakes", n, new State(timeout)).ids;
    }

    /** IDs that are fetched ahead, size with a request. Not for strict tags. */
    public Pool pool(String tag, int size) throws LeafException { return new Pool(path(tag), size); }

    /** The time of these snowflakes is that of the request which fetched them. */
    public Pool snowflakePool(int size) { return new Pool("/v1/snowflakes", size); }

    /** The time, worker and sequence of a snowflake. */
    public Decoded decode(long snowflake) throws LeafException, InterruptedException {
        return call(small, "GET", "/decodeSnowflakeId?snowflakeId=" + snowflake, new State(timeout), body -> {
            Matcher m = DECODED.matcher(body);
            if (!m.matches()) throw new LeafException("bad_request", 400, body, 0, null);
            Instant time = Instant.ofEpochMilli(Long.parseLong(m.group(3)));
            return new Decoded(snowflake, time, Long.parseLong(m.group(1)), Long.parseLong(m.group(2)));
        });
    }

    /** What a snowflake contains. */
    public static final class Decoded {
        public final long id, worker, sequence;
        public final Instant time;

        private Decoded(long id, Instant time, long worker, long sequence) {
            this.id = id;
            this.time = time;
            this.worker = worker;
            this.sequence = sequence;
        }
    }

    /** No ID came. The message says why. */
    public static final class LeafException extends IOException {
        private static final Set<String> MAY_PASS = Set.of("draining", "overloaded", "store_unavailable", "timed_out",
                "clock_backwards", "no_worker_id", "quota_exceeded", "unreachable");
        /**
         * A stable word: see the table in docs/clients.md. The client itself finds timed_out (no answer in time) and
         * unreachable (no generator).
         */
        public final String reason;
        public final int code; // the status of HTTP
        public final long retryAfter; // a hint, in ms; 0: none

        private LeafException(String reason, int code, String text, long retryAfter, Throwable cause) {
            super(text.startsWith(reason + ": ") ? text : reason + ": " + text, cause);
            this.reason = reason;
            this.code = code;
            this.retryAfter = retryAfter;
        }

        /** The client sends the request again until the timeout. */
        public boolean mayPass() { return MAY_PASS.contains(reason); }

        private LeafException again() { return new LeafException(reason, code, getMessage(), retryAfter, this); }
    }

    /** IDs that were fetched ahead. While no generator answers, calls get those in memory. */
    public final class Pool {
        private final String path;
        private final int size;

        // Guarded by this:
        private long[] ids = {};
        private int at; // the next one
        private int low; // more are fetched when no more than these are left
        private CompletableFuture<LeafException> fetching; // gets its error, or null
        private State state; // of the fetch
        private LeafException strict;

        private Pool(String path, int size) {
            this.path = path;
            this.size = size;
        }

        public long next() throws LeafException, InterruptedException { return next(Duration.ofNanos(timeout)); }

        public long next(Duration timeout) throws LeafException, InterruptedException {
            long until = System.nanoTime() + timeout.toNanos();
            for (int fails = 0; ; ) {
                CompletableFuture<LeafException> fetch;
                State its;
                synchronized (this) {
                    if (strict != null) throw strict.again();
                    if (ids.length - at <= low && fetching == null) {
                        fetching = new CompletableFuture<>();
                        state = new State(LeafClient.this.timeout);
                        state.urgent = System.nanoTime() + URGENT; // so the fetch is sent again often enough
                        BACKGROUND.execute(this::more);
                    }
                    if (at < ids.length) return ids[at++];
                    fetch = fetching;
                    its = state;
                }
                LeafException error = within(fetch, until, its);
                // The first fetch may have begun long before the call. The next one helps if there is time for it.
                boolean late = System.nanoTime() - until >= 0;
                if (error != null && (!error.mayPass() || ++fails > 1 || late)) throw error.again();
            }
        }

        private void more() {
            Ids taken = null;
            LeafException error = null;
            try {
                taken = take(path, size, state);
                if (taken.strict)
                    error = new LeafException("bad_request", 400, "a pool would break a strict tag's order", 0, null);
            } catch (LeafException e) {
                error = e;
            } catch (Exception e) {
                error = new LeafException("internal", 500, e.toString(), 0, e);
            }
            CompletableFuture<LeafException> done;
            synchronized (this) {
                done = fetching;
                fetching = null;
                low = (ids.length - at) / 2; // after an error not every call asks, because that cannot help
                if (taken != null && taken.strict) {
                    strict = error;
                } else if (taken != null) {
                    long[] left = Arrays.copyOfRange(ids, at, ids.length + taken.ids.length);
                    System.arraycopy(taken.ids, 0, left, ids.length - at, taken.ids.length);
                    ids = left;
                    at = 0;
                    low = taken.ids.length / 2;
                }
            }
            done.complete(error);
        }
    }

    private static String path(String tag) throws LeafException {
        if (!TAG.matcher(tag).matches()) throw new LeafException("bad_tag", 400, "\"" + tag + "\" is no tag", 0, null);
        return "/v1/segments/" + URLEncoder.encode(tag, StandardCharsets.UTF_8);
    }

    /** What callers of a call know of it, and it of them. */
    private static class State {
        volatile long until, urgent; // when the last and the first of several callers leave
        volatile Runnable late = () -> { }; // runs if the answer is late
        volatile LeafException why; // there was no answer so far. A refusal says more than silence
        volatile int sent; // requests

        State(long timeout) { until = urgent = System.nanoTime() + timeout; }

        LeafException error() {
            if (why != null) return why.again();
            return new LeafException("timed_out", 504, "no answer in time to " + sent + " requests", 0, null);
        }
    }

    /** Callers of next that share a request. */
    private static final class Batch extends State {
        final CompletableFuture<long[]> ids = new CompletableFuture<>();
        int callers; // guarded by waiting

        Batch(long timeout) { super(timeout); }
    }

    private long one(String path, long timeout) throws LeafException, InterruptedException {
        State own = new State(timeout);
        Batch batch;
        int place;
        synchronized (waiting) {
            batch = waiting.get(path);
            if (batch == null) {
                Batch begun = batch = new Batch(timeout);
                waiting.put(path, begun);
                busy.getOrDefault(path, CompletableFuture.completedFuture(null))
                        .whenCompleteAsync((none, error) -> serve(path, begun), BACKGROUND);
            }
            place = batch.callers++;
            if (own.until - batch.until > 0) batch.until = own.until;
            if (own.until - batch.urgent < 0) batch.urgent = own.until;
        }
        try {
            return within(batch.ids, own.until, batch)[place];
        } catch (LeafException e) {
            synchronized (waiting) {
                if (batch.callers == 1 || !FOR_ONE.contains(e.reason)) throw e;
            }
        }
        return take(path, 1, own).ids[0];
    }

    private void serve(String path, Batch batch) {
        CompletableFuture<Void> mine = new CompletableFuture<>();
        int callers;
        synchronized (waiting) {
            waiting.remove(path); // later callers need a later request, also because the tag may be strict
            busy.put(path, mine);
            callers = batch.callers;
        }
        batch.late = () -> mine.complete(null);
        try {
            batch.ids.complete(take(path, callers, batch).ids);
        } catch (Exception e) {
            batch.ids.completeExceptionally(e);
        } finally {
            mine.complete(null);
            synchronized (waiting) {
                busy.remove(path, mine);
            }
        }
    }

    /** What a future gets, if that is in time. Else the state of the call says why not. */
    private static <T> T within(CompletableFuture<T> future, long until, State state)
            throws LeafException, InterruptedException {
        try {
            return future.get(until - System.nanoTime(), TimeUnit.NANOSECONDS);
        } catch (TimeoutException e) {
            throw state.error();
        } catch (ExecutionException e) {
            if (e.getCause() instanceof LeafException) throw ((LeafException) e.getCause()).again();
            throw new LeafException("internal", 500, e.toString(), 0, e);
        }
    }

    private static final class Ids {
        final long[] ids;
        boolean strict;

        Ids(long[] ids) { this.ids = ids; }
    }

    private interface Parser<T> {
        T parse(String body) throws LeafException;
    }

    private Ids take(String path, int n, State state) throws LeafException, InterruptedException {
        if (n < 1) throw new LeafException("bad_request", 400, n + " is no count", 0, null);
        return call(n > 1000 ? large : small, "POST", path + "?count=" + n, state, body -> parse(body, n));
    }

    /** Reads exactly n IDs. Anything else is an error, because a misread ID may belong to another caller. */
    private static Ids parse(String body, int n) throws LeafException {
        long[] ids = new long[Math.min(n, body.length())];
        int have = 0;
        try {
            Matcher head = HEAD.matcher(body), range = RANGE.matcher(body);
            int end = head.lookingAt() ? head.end() : body.length();
            range.region(end, body.length());
            for (; range.find(); end = range.end()) {
                long first = Long.parseLong(range.group(1)), last = Long.parseLong(range.group(2));
                if (last < first || last - first >= n - have) throw unreadable(body);
                ids = have + (last - first) < ids.length ? ids : Arrays.copyOf(ids, n);
                for (long id = first; have < n && id - last <= 0; id++) ids[have++] = id;
            }
            if (have == n && body.substring(end).trim().equals("]}")) return new Ids(ids);
        } catch (NumberFormatException e) {
            // It is above the largest ID.
        }
        throw unreadable(body);
    }

    private static LeafException unreadable(String body) {
        return new LeafException("internal", 500, "these are not the IDs that were asked for: " + shown(body), 0, null);
    }

    private static String shown(String body) { return body.substring(0, Math.min(body.length(), 80)); }

    /** Sends a request until there is an answer, a retry cannot help, or the time is over. */
    private <T> T call(Budget budget, String method, String target, State state, Parser<T> parser)
            throws LeafException, InterruptedException {
        Attempts<T> attempts = new Attempts<>(budget, method, target, state, parser);
        try {
            return attempts.run();
        } finally {
            attempts.end();
        }
    }

    /** The requests of one call. The thread of the call owns what is not guarded. */
    private final class Attempts<T> {
        private static final int MOST_RESENDS = 8;
        private static final long LEAST_GAP = 20 * MS, MOST_GAP = 4000 * MS; // a fifth of the time is between these
        private static final long FIRST_PAUSE = 20 * MS, LAST_PAUSE = 1000 * MS; // after a refusal
        private static final long NEVER = Long.MAX_VALUE / 2;

        private final Budget budget;
        private final String method, target;
        private final State state;
        private final Parser<T> parser;
        private final long begin = System.nanoTime();
        private final BlockingQueue<Object> arrived = new LinkedBlockingQueue<>(); // a LeafException, or a T
        private long sendAt, lateAt = NEVER; // since begin

        // Guarded by this:
        private int resends;
        private boolean firstAnswered, ended;
        private long endedAt;

        Attempts(Budget budget, String method, String target, State state, Parser<T> parser) {
            this.budget = budget;
            this.method = method;
            this.target = target;
            this.state = state;
            this.parser = parser;
        }

        private long now() { return System.nanoTime() - begin; }

        T run() throws LeafException, InterruptedException {
            long until = state.until - begin, urgent = state.urgent - begin;
            long gap = Math.min(Math.max(urgent / 5, LEAST_GAP), MOST_GAP), pause = FIRST_PAUSE;
            boolean paused = false;
            state.sent = 0;
            budget.called();
            for (;;) {
                long at = now();
                if (at >= until) throw state.error();
                if (at >= sendAt) {
                    if (state.sent > 0) state.late.run();
                    if (at > urgent) gap = Math.min(2 * gap, MOST_GAP);
                    paused = false;
                    sendAt = at + gap;
                    send(at, until);
                } else if (at >= lateAt) {
                    state.late.run();
                    lateAt = at + budget.delay();
                    if (resends >= MOST_RESENDS) lateAt = NEVER;
                    else if (resend()) send(at, until);
                }
                long rest = Math.min(Math.min(sendAt, lateAt), until) - now();
                Object answer = arrived.poll(Math.max(rest, 0), TimeUnit.NANOSECONDS);
                if (answer == null) continue;
                if (!(answer instanceof LeafException)) {
                    @SuppressWarnings("unchecked")
                    T ids = (T) answer;
                    return ids;
                }
                LeafException e = (LeafException) answer;
                boolean quota = e.reason.equals("quota_exceeded");
                if (!e.mayPass() || quota && (e.retryAfter == 0 || now() + e.retryAfter * MS >= until)) throw e.again();
                state.why = e;
                if (quota || e.reason.equals("unreachable") || e.reason.equals("overloaded")) budget.calm();
                if (paused) continue;
                paused = true;
                long wait = Math.max(pause, Math.min(e.retryAfter * MS, LAST_PAUSE));
                sendAt = now() + wait + ThreadLocalRandom.current().nextLong(wait / 2);
                pause = Math.min(2 * pause, LAST_PAUSE);
                lateAt = NEVER;
            }
        }

        private synchronized boolean resend() {
            if (!budget.resend()) return false;
            resends++;
            return true;
        }

        /** Sends the request once, to the servers in turn. */
        private void send(long at, long until) {
            int n = state.sent++, server = (first + n) % servers.length;
            lateAt = at + budget.delay();
            HttpRequest.Builder request = HttpRequest.newBuilder(URI.create(servers[server] + target))
                    .method(method, HttpRequest.BodyPublishers.noBody())
                    .timeout(Duration.ofNanos(Math.max(until - at, Budget.SILENCE)));
            if (token != null) request.header("Authorization", "Bearer " + token);
            HTTP.sendAsync(request.build(), HttpResponse.BodyHandlers.ofString()).whenComplete((response, error) -> {
                Throwable cause = error instanceof CompletionException ? error.getCause() : error;
                if (cause instanceof HttpTimeoutException) return; // silence
                Object answer;
                try {
                    answer = read(response, cause);
                    budget.answered(at + begin);
                    first = server;
                } catch (LeafException e) {
                    answer = e;
                }
                if (n == 0 && error == null) answeredFirst();
                arrived.add(answer);
            });
        }

        private Object read(HttpResponse<String> response, Throwable error) throws LeafException {
            if (error != null)
                throw new LeafException("unreachable", 503, "no generator answers " + target + ": " + error, 0, error);
            String body = response.body();
            if (response.statusCode() == 200) {
                T value = parser.parse(body);
                if (value instanceof Ids)
                    ((Ids) value).strict = response.headers().firstValue("Leaf-Order").orElse("").equals("strict");
                return value;
            }
            int status = response.statusCode();
            Matcher reason = REASON.matcher(body), detail = DETAIL.matcher(body), retry = RETRY_AFTER.matcher(body);
            if (reason.find() && detail.find()) {
                long retryAfter = retry.find() ? Long.parseLong(retry.group(1)) : 0;
                String text = detail.group(1).replace("\\\"", "\"").replace("\\\\", "\\");
                throw new LeafException(reason.group(1), status, text, retryAfter, null);
            }
            // It is of a proxy in front of the generator.
            String of = status == 429 ? "overloaded" : status == 504 ? "timed_out"
                    : status == 502 || status == 503 ? "unreachable" : "internal";
            throw new LeafException(of, status, "status " + status + ": " + shown(body), 0, null);
        }

        private synchronized void answeredFirst() {
            firstAnswered = true;
            if (ended && now() - endedAt < Budget.SILENCE) budget.pay(resends);
        }

        synchronized void end() {
            ended = true;
            endedAt = now();
            if (firstAnswered) budget.pay(resends);
        }
    }

    /** Bounds the requests that are sent again, and knows when an answer is late. */
    private static final class Budget {
        static final long LEAST_DELAY = 10 * MS, FIRST_DELAY = 100 * MS;
        static final long SILENCE = 1000 * MS; // an answer that takes longer comes from a frozen generator
        static final double MOST_TOKENS = 8, MOST_DEBT = 100, TOKENS_A_CALL = 0.01;
        static final int CALLS_A_RESEND = 2, FREE_RESENDS = 100; // in a second

        // Guarded by this:
        private final long begin = System.nanoTime();
        private long delay = FIRST_DELAY; // 999 of 1,000 answers come sooner
        private long raised, quiet, second; // since begin
        private int answers, calls, before, resends; // before: calls in the second before this one
        private double tokens = 1;

        synchronized long delay() { return delay; }

        /** An answer that was late makes the delay longer. Requests that wait at the same time do that once. */
        synchronized void answered(long sent) {
            long at = System.nanoTime() - begin, took = at - (sent - begin);
            if (took <= delay) {
                delay = Math.max(LEAST_DELAY, delay - delay / (answers < 100 ? 32 : 4480));
            } else if (sent - begin >= raised && took < SILENCE) {
                delay += delay / 4;
                raised = at;
            }
            answers++;
        }

        synchronized void called() {
            turn();
            calls++;
            tokens = Math.min(tokens + TOKENS_A_CALL, MOST_TOKENS);
        }

        /** Says whether a request may be sent again, and counts it. */
        synchronized boolean resend() {
            turn();
            boolean quietNow = System.nanoTime() - begin < quiet;
            if (tokens <= 0 || quietNow || resends >= (calls + before) / CALLS_A_RESEND + FREE_RESENDS) return false;
            resends++;
            return true;
        }

        /** They were not needed: the first request was answered, too. */
        synchronized void pay(int resends) { tokens = Math.max(tokens - resends, -MOST_DEBT); }

        /** None for a moment: generators are overloaded, or there is none. */
        synchronized void calm() { quiet = System.nanoTime() - begin + delay; }

        private void turn() {
            long now = TimeUnit.NANOSECONDS.toSeconds(System.nanoTime() - begin);
            if (now == second) return;
            before = now == second + 1 ? calls : 0;
            calls = resends = 0;
            second = now;
        }
    }
}
