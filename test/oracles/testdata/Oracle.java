import java.io.*;
import java.time.*;
import java.util.*;
import org.quartz.CronExpression;

/** Answers the queries of package oracles, a line each: with Quartz (quartz), or with java.time (periods). */
public class Oracle {
    public static void main(String[] args) throws Exception {
        var in = new BufferedReader(new InputStreamReader(System.in));
        var out = new PrintStream(new BufferedOutputStream(System.out), false);
        for (String line; (line = in.readLine()) != null;) {
            String[] q = line.split("\t", -1);
            out.println(args[0].equals("quartz") ? cron(q) : period(q) + " " + ahead(q));
        }
        out.flush();
    }

    /** Enough steps of a search for a query: centuries of months. */
    static final int LIMIT = 1_000_000;
    static int steps;

    static class Endless extends RuntimeException {}

    /** Seconds of an expression, which Quartz looks at in each step of a search: they end one that has no end. */
    static class Counted extends TreeSet<Integer> {
        Counted(SortedSet<Integer> seconds) {
            super(seconds);
        }

        @Override public SortedSet<Integer> tailSet(Integer from) {
            if (++steps > LIMIT) {
                throw new Endless();
            }
            return super.tailSet(from);
        }
    }

    /** zone, after in Unix seconds, how many, "or" or "and", expressions, expressions; ends in "endless" if it loops. */
    static String cron(String[] q) throws Exception {
        var answer = new StringJoiner(" ");
        List<CronExpression> a = parse(q[4], q[0]), b = parse(q[5], q[0]);
        long at = Long.parseLong(q[1]);
        steps = 0;
        try {
            for (int n = Integer.parseInt(q[2]); n > 0; n--) {
                long x = next(a, at), y = next(b, at);
                while (q[3].equals("and") && x != y) {
                    at = Math.max(x, y) - 1;
                    x = next(a, at);
                    y = next(b, at);
                }
                at = Math.min(x, y);
                answer.add("" + at);
            }
        } catch (Endless e) {
            answer.add("endless");
        }
        return answer.toString();
    }

    static final Map<String, CronExpression> PARSED = new HashMap<>();

    @SuppressWarnings("unchecked")
    static List<CronExpression> parse(String list, String zone) throws Exception {
        var all = new ArrayList<CronExpression>();
        for (String text : list.isEmpty() ? new String[0] : list.split("\\|")) {
            var e = PARSED.get(text);
            if (e == null) {
                PARSED.put(text, e = new CronExpression(text));
                var seconds = CronExpression.class.getDeclaredField("seconds");
                seconds.setAccessible(true);
                seconds.set(e, new Counted((SortedSet<Integer>) seconds.get(e)));
            }
            e.setTimeZone(TimeZone.getTimeZone(zone));
            all.add(e);
        }
        return all;
    }

    static final long NEVER = 1L << 40;

    static long next(List<CronExpression> list, long after) {
        long first = NEVER;
        for (var e : list) {
            Date d = e.getTimeAfter(new Date(after * 1000));
            if (d != null) {
                first = Math.min(first, d.getTime() / 1000);
            }
        }
        return first;
    }

    /** How far the clock is ahead of UTC at the anchor, in seconds. */
    static int ahead(String[] q) {
        return ZoneId.of(q[0]).getRules().getOffset(Instant.ofEpochMilli(Long.parseLong(q[1]))).getTotalSeconds();
    }

    /** zone, anchor in Unix milliseconds, period, how many of them: the instant in Unix milliseconds. */
    static long period(String[] q) {
        var anchor = Instant.ofEpochMilli(Long.parseLong(q[1]));
        var rules = ZoneId.of(q[0]).getRules();
        int n = Integer.parseInt(q[3]);
        if (n == 0) {
            return anchor.toEpochMilli();
        }
        var local = LocalDateTime.ofInstant(anchor, rules.getOffset(anchor)).plus(Period.parse(q[2]).multipliedBy(n));
        var gap = rules.getTransition(local);
        if (gap != null && gap.isGap()) {
            return gap.getInstant().toEpochMilli();
        }
        return local.toInstant(rules.getValidOffsets(local).get(0)).toEpochMilli();
    }
}
