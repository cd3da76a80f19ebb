import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Scanner;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import java.util.stream.Collectors;
import leafbus.LeafClient;

/**
 * Runs the calls of ../conformance.txt: java Conformance REAL SCRIPTED, the URLs of generators, joined by commas.
 * Each line of stdin is NUMBER SERVER VERB ARGUMENT..., with "within MS" at its end. The answer on stdout is
 * NUMBER = ID..., or NUMBER ! REASON CODE MESSAGE.
 */
final class Conformance {
    private interface Take {
        long[] take() throws Exception;
    }

    private static LeafClient real, scripted;
    private static final Map<String, LeafClient.Pool> pools = new HashMap<>();

    public static void main(String[] args) throws Exception {
        ExecutorService threads = Executors.newCachedThreadPool();
        real = new LeafClient(Duration.ofSeconds(5), "a-token", args[0].split(","));
        for (Scanner in = new Scanner(System.in); in.hasNextLine(); ) {
            String[] words = in.nextLine().split(" ");
            if (words[2].equals("reset")) { // a case with a script uses a new client
                scripted = new LeafClient(args[1].split(","));
                pools.clear();
            }
            threads.execute(() -> System.out.println(words[0] + " " + answer(words)));
        }
        System.exit(0);
    }

    private static String answer(String[] words) {
        try {
            return "= " + Arrays.stream(run(words)).mapToObj(Long::toString).collect(Collectors.joining(" "));
        } catch (LeafClient.LeafException e) {
            return "! " + e.reason + " " + e.code + " " + e.getMessage();
        } catch (Exception e) {
            return "! " + e;
        }
    }

    private static long[] run(String[] words) throws Exception {
        LeafClient leaf = words[1].equals("real") ? real : scripted;
        boolean within = words[words.length - 2].equals("within");
        Duration timeout = Duration.ofMillis(within ? Long.parseLong(words[words.length - 1]) : 5000);
        switch (words[2]) {
            case "next": return one(within ? leaf.next(words[3], timeout) : leaf.next(words[3]));
            case "take": {
                int n = Integer.parseInt(words[4]);
                return within ? leaf.take(words[3], n, timeout) : leaf.take(words[3], n);
            }
            case "snowflake": return one(within ? leaf.snowflake(timeout) : leaf.snowflake());
            case "snowflakes": return leaf.snowflakes(Integer.parseInt(words[3]));
            case "pool": {
                LeafClient.Pool pool;
                synchronized (pools) {
                    pool = pools.get(words[3]);
                    if (pool == null) pools.put(words[3], pool = leaf.pool(words[3], Integer.parseInt(words[4])));
                }
                return one(pool.next(timeout));
            }
            case "decode": {
                LeafClient.Decoded d = leaf.decode(Long.parseLong(words[3]));
                return new long[] {d.id, d.time.toEpochMilli(), d.worker, d.sequence};
            }
            case "load": return load(Duration.ofMillis(Long.parseLong(words[3])));
            case "calls": return one(calls.get());
            case "end": return end(words[3]);
            default: return new long[0];
        }
    }

    private static long[] one(long id) { return new long[] {id}; }

    // Load: threads that take IDs of the tag order, and snowflakes, until the verb end writes them to a file.
    private static final AtomicInteger calls = new AtomicInteger(), failed = new AtomicInteger();
    private static final AtomicLong longest = new AtomicLong();
    private static final List<Thread> callers = new ArrayList<>();
    private static final StringBuffer taken = new StringBuffer();
    private static volatile boolean ended;

    private static long[] load(Duration timeout) throws Exception {
        LeafClient.Pool pool = real.pool("order", 20);
        pool.next(); // the first one loads the classes of HTTP
        List<Take> kinds = List.of(
                () -> one(real.next("order", timeout)), () -> one(real.next("order", timeout)),
                () -> one(pool.next(timeout)), () -> real.take("order", 3, timeout),
                () -> one(real.snowflake(timeout)));
        for (Take kind : kinds) {
            Thread caller = new Thread(() -> call(kind));
            callers.add(caller);
            caller.start();
        }
        return new long[0];
    }

    private static void call(Take kind) {
        while (!ended) {
            long began = System.nanoTime();
            try {
                for (long id : kind.take()) taken.append(id + "\n"); // in one step
            } catch (Exception e) {
                failed.incrementAndGet();
                System.err.println(e);
            }
            calls.incrementAndGet();
            longest.accumulateAndGet(System.nanoTime() - began, Math::max);
            try {
                Thread.sleep(2);
            } catch (InterruptedException e) {
                return;
            }
        }
    }

    private static long[] end(String file) throws Exception {
        ended = true;
        for (Thread caller : callers) caller.join();
        Files.writeString(Path.of(file), taken);
        return new long[] {calls.get(), failed.get(), longest.get() / 1_000_000};
    }
}
