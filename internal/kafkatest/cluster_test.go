package kafkatest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waterclock/waterclock/internal/kafka/partlog"
	"github.com/waterclock/waterclock/internal/kafkatest/runs"
	"github.com/waterclock/waterclock/internal/kit/localkafka"
)

func produce(t *testing.T, cl *kgo.Client, topic, key string) {
	t.Helper()
	r := &kgo.Record{Topic: topic, Key: []byte(key)}
	if err := cl.ProduceSync(deadline(t), r).FirstErr(); err != nil {
		t.Fatalf("produce %s: %v", key, err)
	}
}

func TestSharedShowsCommittedRecordsOnly(t *testing.T) {
	t.Parallel()
	c := Shared(t)
	topic := c.CreateTopic(t, 1, nil)
	cl := c.Client(t, kgo.TransactionalID(topic))
	col := Collect(t, c, topic)
	for _, step := range []struct {
		key string
		end kgo.TransactionEndTry
	}{{"aborted", kgo.TryAbort}, {"committed", kgo.TryCommit}} {
		if err := cl.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		produce(t, cl, topic, step.key)
		if err := cl.EndTransaction(deadline(t), step.end); err != nil {
			t.Fatal(err)
		}
	}
	got := col.WaitFor(1, waitLimit)
	if len(got) != 1 || string(got[0].Key) != "committed" {
		t.Errorf("collected %d records, first key %q, want only %q", len(got), got[0].Key, "committed")
	}
	if age := time.Since(got[0].At); age < 0 || age > waitLimit {
		t.Errorf("received %v ago", age)
	}
}

// A record that is committed and not read yet does not count as an unexpected one.
func TestQuietReadsWhatIsThereFirst(t *testing.T) {
	t.Parallel()
	c := Shared(t)
	topic := c.CreateTopic(t, 3, nil)
	cl := c.Client(t, kgo.TransactionalID(topic))
	if err := cl.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	const n = 30
	for i := range n {
		produce(t, cl, topic, fmt.Sprint(i))
	}
	if err := cl.EndTransaction(deadline(t), kgo.TryCommit); err != nil {
		t.Fatal(err)
	}
	col := Collect(t, c, topic)
	if !col.Quiet(time.Millisecond) || len(col.Records()) != n {
		t.Errorf("%d records, want %d", len(col.Records()), n)
	}
}

func TestSharedIsCountedOnce(t *testing.T) {
	file := t.TempDir() + "/count"
	t.Setenv(envCount, file)
	if first, second := Shared(t), Shared(t); first.Cluster != second.Cluster {
		t.Error("two shared clusters")
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	want := "github.com/waterclock/waterclock/internal/kafkatest/" + t.Name() + "\n"
	if string(got) != want {
		t.Errorf("count file holds %q, want %q", got, want)
	}
}

func TestSharedMustNotBeDisturbed(t *testing.T) {
	c := Shared(t)
	defer func() {
		if recover() == nil {
			t.Error("Kill of the shared broker did not panic")
		}
	}()
	c.Kill(0)
}

func TestOneBrokerIsDisturbed(t *testing.T) {
	runs.NeedSlow(t)
	t.Parallel()
	c := Start(t, 1, WithProperty("broker.session.timeout.ms", "2000"),
		WithProperty("broker.heartbeat.interval.ms", "300"))
	topic := c.CreateTopic(t, 1, nil)
	cl := c.Client(t)
	produce(t, cl, topic, "first")

	c.Pause(0)
	c.Pause(0) // it is already paused
	if answers(t, cl, 500*time.Millisecond) {
		t.Error("a paused broker answers")
	}
	c.Resume(0)
	if !answers(t, cl, waitLimit) {
		t.Error("a resumed broker does not answer")
	}
	for _, end := range []struct {
		name string
		do   func(int)
	}{{"stop", c.Stop}, {"kill", c.Kill}} {
		end.do(0)
		if c.Brokers[0].Running() {
			t.Errorf("after %s the broker runs", end.name)
		}
		c.Restart(0)
		produce(t, cl, topic, "after "+end.name)
	}
	c.Restart(0) // the broker is running
	if got := Collect(t, c, topic).WaitFor(3, waitLimit); string(got[2].Key) != "after kill" {
		t.Errorf("last record is %q", got[2].Key)
	}
}

func answers(t *testing.T, cl *kgo.Client, within time.Duration) bool {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	return cl.Ping(ctx) == nil
}

func TestThreeBrokersSurviveOne(t *testing.T) {
	runs.NeedSlow(t)
	t.Parallel()
	c := Start(t, 3)
	topic := c.CreateTopic(t, 3, nil)
	cl := c.Client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	col := Collect(t, c, topic)
	c.Kill(0)
	lacking := whatFollowersLack(t, c, topic)
	for p := range int32(3) {
		r := &kgo.Record{Topic: topic, Partition: p, Value: []byte("x")}
		if err := cl.ProduceSync(deadline(t), r).FirstErr(); err != nil {
			t.Errorf("produce to partition %d without broker 0: %v", p, err)
		}
	}
	for _, p := range lacking {
		if _, _, shown, err := partlog.Bounds(deadline(t), cl, partlog.Log{Topic: topic, Partition: p}); err != nil ||
			shown != 2 {
			t.Errorf("with the dead broker out of the in-sync replicas partition %d shows %d records, %v",
				p, shown, err)
		}
	}
	col.WaitFor(3+len(lacking), waitLimit)
	c.Restart(0)
	for admin, ctx := c.Admin(t), deadline(t); ; { // the asked broker may hear of it later than the controller
		brokers, err := admin.ListBrokers(ctx)
		if err != nil {
			t.Fatalf("after the restart %d brokers, error %v, want 3", len(brokers), err)
		}
		if len(brokers) == 3 {
			return
		}
	}
}

// whatFollowersLack writes a record to each partition whose leader waits for a dead broker: no reader gets it, but
// partlog.Reader.End counts it. It returns those partitions.
func whatFollowersLack(t *testing.T, c *Cluster, topic string) (ps []int32) {
	t.Helper()
	// The leader answers when the dead broker has left the in-sync replicas, which takes as
	// long as this machine takes. With a shorter timeout it would answer that time has run
	// out, with the record in its log, and kgo would write the record a second time.
	cl := c.Client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.DisableIdempotentWrite(),
		kgo.ProduceRequestTimeout(10*inSyncTimeout), kgo.RecordRetries(0))
	topics, err := c.Admin(t).ListTopics(deadline(t), topic)
	if err != nil {
		t.Fatal(err)
	}
	for p, d := range topics[topic].Partitions {
		if d.Leader == 0 {
			continue
		}
		cl.Produce(t.Context(), &kgo.Record{Topic: topic, Partition: p}, nil)
		at := partlog.Log{Topic: topic, Partition: p}
		var end int64
		for ctx := deadline(t); err == nil && end == 0; {
			end, err = partlog.NewReader(cl, at, 0).End(ctx)
		}
		_, _, shown, err2 := partlog.Bounds(deadline(t), cl, at)
		if err != nil || err2 != nil || end != 1 || shown != 0 {
			t.Fatalf("partition %d: the end is %d, %v, and %d records are shown, %v; want one that nobody is shown", p,
				end, err, shown, err2)
		}
		ps = append(ps, p)
	}
	if len(ps) == 0 {
		t.Fatal("the dead broker led everything")
	}
	return ps
}

// Brokers start from an archive of classes that this JVM accepts.
func TestBrokersStartFromAnArchive(t *testing.T) {
	t.Parallel()
	if os.Getenv(localkafka.EnvLibs) != "" {
		t.Skipf("no archive is kept of the jars in %s", localkafka.EnvLibs)
	}
	Shared(t)
	tools, err := process.tools()
	if err != nil {
		t.Fatal(err)
	}
	path := tools.Archive
	if path == "" {
		t.Fatal("brokers start without an archive")
	}
	if err := tools.Accepts(t.Context(), path); err != nil {
		t.Error(err)
	}
	damaged := filepath.Join(t.TempDir(), "damaged.jsa")
	archive, err := os.ReadFile(path)
	if err == nil {
		err = os.WriteFile(damaged, archive[:len(archive)/2], 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	if tools.Accepts(t.Context(), damaged) == nil {
		t.Error("half an archive is accepted")
	}
}

// Brokers whose directories were not formatted by Kafka's tool have the same features as with it.
func TestBrokersAreFormattedWithoutTheTool(t *testing.T) {
	t.Parallel()
	if os.Getenv(localkafka.EnvLibs) != "" {
		t.Skipf("nothing is kept of the jars in %s", localkafka.EnvLibs)
	}
	c := Shared(t)
	if tools, err := process.tools(); err != nil || !tools.Formats() {
		t.Fatalf("each directory is formatted by the tool: %v", err)
	}
	v, err := kmsg.NewPtrApiVersionsRequest().RequestWith(deadline(t), c.Client(t))
	if err != nil {
		t.Fatal(err)
	}
	levels := make(map[string]int16)
	for _, f := range v.FinalizedFeatures {
		levels[f.Name] = f.MaxVersionLevel
	}
	for name, least := range map[string]int16{"metadata.version": 30, "transaction.version": 2, "group.version": 1,
		"share.version": 1} {
		if levels[name] < least {
			t.Errorf("%s is %d, want %d or more", name, levels[name], least)
		}
	}
}

// Without Java, tests skip with a reason. If Kafka is required, they fail.
func TestMissingJavaSkipsOrFails(t *testing.T) {
	for _, tc := range []struct {
		name, required, want string
		fails                bool
	}{
		{"optional", "0", "--- SKIP: TestSharedMustNotBeDisturbed", false},
		{"required", "1", "--- FAIL: TestSharedMustNotBeDisturbed", true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cmd := self("", "-test.v", "-test.run=^TestSharedMustNotBeDisturbed$")
			cmd.Env = append(cmd.Env, "JAVA_HOME="+t.TempDir(), envRequire+"="+tc.required)
			out, err := cmd.CombinedOutput()
			if (err != nil) != tc.fails {
				t.Errorf("exit %v, want failure: %v", err, tc.fails)
			}
			for _, want := range []string{tc.want, "real Kafka needs Java 17 and Maven"} {
				if !strings.Contains(string(out), want) {
					t.Errorf("output lacks %q:\n%s", want, out)
				}
			}
		})
	}
}

// A broker unpacks files into its directory, which is removed with it, and not into the machine's temporary directory.
func TestBrokersUnpackIntoTheirDirectory(t *testing.T) {
	c := Shared(t)
	produce(t, c.Client(t, kgo.ProducerBatchCompression(kgo.SnappyCompression())), c.CreateTopic(t, 1, nil),
		strings.Repeat("compressible ", 100))
	for _, b := range c.Brokers {
		if libs, _ := filepath.Glob(filepath.Join(b.Dir(), "*", "snappy-*.so")); len(libs) == 0 {
			t.Errorf("broker %d has no native library in its directory", b.ID())
		}
	}
}
