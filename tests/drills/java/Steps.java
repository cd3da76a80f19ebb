import java.time.Duration;
import java.util.Scanner;

/**
 * Objects of one tag, or of snowflakes, that are asked in turn, as often as the numbers on stdin say:
 * java Steps TAG|snowflakes OBJECTS BATCH URL
 */
final class Steps {
    public static void main(String[] args) throws Exception {
        LeafIds[] objects = new LeafIds[Integer.parseInt(args[1])];
        int batch = Integer.parseInt(args[2]);
        Duration timeout = Duration.ofSeconds(5);
        for (int i = 0; i < objects.length; i++)
            objects[i] = args[0].equals("snowflakes")
                ? LeafIds.ofSnowflakes(batch, timeout, null, args[3])
                : LeafIds.ofTag(args[0], batch, timeout, null, args[3]);
        for (Scanner steps = new Scanner(System.in); steps.hasNextInt(); ) {
            int n = steps.nextInt();
            for (int i = 0; i < n; i++) {
                try {
                    System.out.println(objects[i % objects.length].next());
                } catch (LeafIds.LeafException e) {
                    System.out.println(e.reason);
                }
            }
        }
    }
}
