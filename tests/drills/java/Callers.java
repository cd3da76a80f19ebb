import java.time.Duration;
import java.util.Arrays;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.LockSupport;

/**
 * Threads that share two objects and take IDs until stdin ends: java Callers TAG TIMEOUT_MS URL...
 * Stdout gets the IDs. Stderr gets the number of calls so far, each call that failed, and the longest call.
 */
final class Callers {
    private static final AtomicLong calls = new AtomicLong(), longest = new AtomicLong();
    private static volatile boolean ended;

    public static void main(String[] args) throws Exception {
        Duration timeout = Duration.ofMillis(Long.parseLong(args[1]));
        String[] servers = Arrays.copyOfRange(args, 2, args.length);
        // Small batches: most calls meet a fetch that is under way.
        LeafIds ids = LeafIds.ofTag(args[0], 20, timeout, null, servers);
        LeafIds snowflakes = LeafIds.ofSnowflakes(20, timeout, null, servers);
        Thread[] threads = new Thread[8];
        for (int i = 0; i < threads.length; i++) {
            LeafIds from = i < 6 ? ids : snowflakes;
            threads[i] = new Thread(() -> take(from));
            threads[i].start();
        }
        while (System.in.available() == 0) {
            System.err.println(calls.get() + " calls");
            Thread.sleep(50);
        }
        ended = true;
        for (Thread t : threads) t.join();
        System.err.println("longest: " + longest.get() / 1_000_000 + " ms");
        System.err.println(calls.get() + " calls");
    }

    private static void take(LeafIds from) {
        StringBuilder taken = new StringBuilder();
        for (int i = 1; !ended; i++) {
            long began = System.nanoTime();
            try {
                if (i % 10 != 0) taken.append(from.next()).append('\n');
                else for (long id : from.take(3)) taken.append(id).append('\n');
                calls.incrementAndGet();
            } catch (Exception e) {
                System.err.println("FAILED: " + e);
            }
            longest.accumulateAndGet(System.nanoTime() - began, Math::max);
            LockSupport.parkNanos(200_000);
        }
        System.out.print(taken);
    }
}
