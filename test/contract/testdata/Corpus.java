import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.DataOutputStream;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.*;
import java.util.zip.CRC32;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.*;

/**
 * Reads and writes with Kafka's own clients what it is told to on its standard input, a line for each partition, and answers with a line
 * each.
 *
 * <pre>
 * read  topic partition from to          records in [from, to); the record at to is sound
 *       topic partition from  count digest  offsets|-  -|past|seek|stuck|lost  exception
 * write topic partition codec level records   as one batch
 *       topic partition ok
 * sound topic partition                       a sound record
 * </pre>
 */
public class Corpus {
    static final Duration LIMIT = Duration.ofSeconds(30);
    static Producer<byte[], byte[]> out; // of sound records

    public static void main(String[] args) throws Exception {
        Properties p = new Properties();
        p.put("bootstrap.servers", args[0]);
        p.put("isolation.level", "read_committed");
        p.put("enable.auto.commit", "false");
        p.put("auto.offset.reset", "none");
        p.put("fetch.max.wait.ms", "1"); // else a fetch of the partition before is waited for
        p.put("max.poll.records", "1000000");
        p.put("max.partition.fetch.bytes", "16777216");
        try (Consumer<byte[], byte[]> c = new KafkaConsumer<>(p, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
            for (String line; (line = in.readLine()) != null; ) {
                String[] f = line.split(" ");
                TopicPartition tp = new TopicPartition(f[1], Integer.parseInt(f[2]));
                if (f[0].equals("read")) {
                    System.out.println(read(c, tp, Long.parseLong(f[3]), Long.parseLong(f[4])));
                } else if (f[0].equals("sound")) {
                    sound(args[0], tp);
                } else {
                    write(args[0], tp, f[3], f[4], Integer.parseInt(f[5]));
                    System.out.println(tp.topic() + "\t" + tp.partition() + "\tok");
                }
                System.out.flush();
            }
        }
    }

    static String read(Consumer<byte[], byte[]> c, TopicPartition tp, long from, long to) {
        c.assign(List.of(tp));
        c.seek(tp, from);
        Digest d = new Digest();
        List<String> offsets = new ArrayList<>();
        Throwable thrown = null;
        boolean there = false;
        String past = "-";
        long end = System.nanoTime() + LIMIT.toNanos();
        while (!there && thrown == null && System.nanoTime() < end) {
            try {
                for (ConsumerRecord<byte[], byte[]> r : c.poll(Duration.ofMillis(200))) {
                    if (!there && sound(r) && r.offset() >= to) {
                        there = true;
                        past = r.offset() == to ? "-" : "lost";
                    }
                    if (!there) {
                        offsets.add("" + (r.offset() - from));
                        d.add(r);
                    }
                }
            } catch (Throwable e) {
                thrown = e;
            }
        }
        if (!there && thrown == null) {
            thrown = new IllegalStateException("waits at +" + (c.position(tp) - from));
        }
        if (thrown != null) {
            past = again(c, tp, to);
        }
        return String.join("\t", tp.topic(), "" + tp.partition(), "" + from, "" + d.count, d.hex(), offsets(offsets), past, text(thrown));
    }

    static boolean sound(ConsumerRecord<byte[], byte[]> r) {
        return r.key() == null && r.value() != null && new String(r.value(), StandardCharsets.UTF_8).equals("sound");
    }

    /** The offsets, if they are not 0, 1, 2 and so on. */
    static String offsets(List<String> offsets) {
        for (int i = 0; i < offsets.size(); i++) {
            if (!offsets.get(i).equals("" + i)) {
                return String.join(" ", offsets);
            }
        }
        return "-";
    }

    /** Tells whether the consumer goes on by itself when it is asked again, or else when it is told to seek. */
    static String again(Consumer<byte[], byte[]> c, TopicPartition tp, long to) {
        for (int i = 0; i < 2; i++) {
            try {
                for (ConsumerRecord<byte[], byte[]> r : c.poll(Duration.ofMillis(50))) {
                    if (r.offset() == to && sound(r)) {
                        return "past";
                    }
                }
            } catch (Throwable e) {
                // The same again.
            }
        }
        c.seek(tp, to);
        long end = System.nanoTime() + LIMIT.toNanos();
        while (System.nanoTime() < end) {
            try {
                for (ConsumerRecord<byte[], byte[]> r : c.poll(Duration.ofMillis(200))) {
                    if (r.offset() == to && sound(r)) {
                        return "seek";
                    }
                }
            } catch (Throwable e) {
                return "stuck";
            }
        }
        return "stuck";
    }

    /** The exception, and what is at its bottom. */
    static String text(Throwable e) {
        if (e == null) {
            return "-";
        }
        Throwable root = e;
        while (root.getCause() != null) {
            root = root.getCause();
        }
        String s = e.getClass().getSimpleName();
        if (root != e) {
            s += " of " + root.getClass().getSimpleName();
        }
        // What Java itself says changes with its version.
        return root.getClass().getName().startsWith("org.apache.kafka.") || root instanceof IllegalStateException
            ? (s + ": " + root.getMessage()).replaceAll("\\s+", " ") : s;
    }

    static void sound(String seeds, TopicPartition tp) throws Exception {
        if (out == null) {
            out = new KafkaProducer<>(Map.of("bootstrap.servers", seeds), new ByteArraySerializer(), new ByteArraySerializer());
        }
        out.send(new ProducerRecord<>(tp.topic(), tp.partition(), null, "sound".getBytes(StandardCharsets.UTF_8))).get();
    }

    static void write(String seeds, TopicPartition tp, String codec, String level, int records) throws Exception {
        Properties p = new Properties();
        p.put("bootstrap.servers", seeds);
        p.put("compression.type", codec);
        if (!level.equals("-")) {
            p.put("compression." + codec + ".level", level);
        }
        p.put("linger.ms", "60000");
        p.put("batch.size", "900000");
        p.put("enable.idempotence", "false");
        try (Producer<byte[], byte[]> out = new KafkaProducer<>(p, new ByteArraySerializer(), new ByteArraySerializer())) {
            for (int i = 0; i < records; i++) {
                ProducerRecord<byte[], byte[]> r = new ProducerRecord<>(tp.topic(), tp.partition(), 1_700_000_000_000L + i,
                    ("key-" + i).getBytes(StandardCharsets.UTF_8), ("value of record " + i).getBytes(StandardCharsets.UTF_8));
                r.headers().add("header", Integer.toString(i % 7).getBytes(StandardCharsets.UTF_8));
                out.send(r);
            }
            out.flush();
        }
    }

    /** Computes what corpus.Digest computes. */
    static class Digest {
        final CRC32 crc = new CRC32();
        long count;

        void add(ConsumerRecord<byte[], byte[]> r) {
            count++;
            try {
                ByteArrayOutputStream bytes = new ByteArrayOutputStream();
                DataOutputStream out = new DataOutputStream(bytes);
                field(out, r.key());
                field(out, r.value());
                Header[] headers = r.headers().toArray();
                out.writeInt(headers.length);
                for (Header h : headers) {
                    field(out, h.key().getBytes(StandardCharsets.UTF_8));
                    field(out, h.value());
                }
                crc.update(bytes.toByteArray());
            } catch (java.io.IOException e) {
                throw new java.io.UncheckedIOException(e);
            }
        }

        static void field(DataOutputStream out, byte[] b) throws java.io.IOException {
            out.writeInt(b == null ? -1 : b.length);
            if (b != null) {
                out.write(b);
            }
        }

        String hex() {
            return String.format("%08x", crc.getValue());
        }
    }
}
