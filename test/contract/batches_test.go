package contract

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/corpus"
	"github.com/waterclock/waterclock/test/rig"
)

// tool is Kafka's own producer, of which none of our code is a part. It writes one request in a batch of its own.
func tool(t *testing.T, c *kafkatest.Cluster, request string, properties ...string) {
	t.Helper()
	args := []string{"--bootstrap-server", c.Seeds()[0], "--topic", strings.Fields(request)[0],
		"--reader-property", "parse.headers=true", "--reader-property", "parse.key=true"}
	for _, p := range properties {
		args = append(args, "--command-property", p)
	}
	cmd := kafkatest.Tool(t, "org.apache.kafka.tools.ConsoleProducer", args...)
	cmd.Stdin = strings.NewReader(strings.SplitN(request, " ", 2)[1] + "\n")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("ConsoleProducer: %v\n%s", err, out)
	}
}

// A producer, or a topic, with the highest level of zstd, which Kafka has since 3.8, makes batches with a window of
// 128 MiB, however small they are. They are requests like others.
func TestTheHighestLevelsOfZstd(t *testing.T) {
	t.Parallel()
	c := kafkatest.Shared(t)
	requests := c.CreateTopic(t, 1, nil)
	out := c.CreateTopic(t, 1, nil, requests+"-out")
	in := serve(t, rig.Config(t, c.Seeds(), requests), 1)
	emissions := kafkatest.Collect(t, c, out)
	for _, level := range []string{"21", "22"} {
		tool(t, c, fmt.Sprintf("%s timer-after:1ms,timer-target-topic:%s\tby-producer-%s\tv", requests, out, level),
			"compression.type=zstd", "compression.zstd.level="+level)
	}
	codec, level := "zstd", "22"
	if _, err := c.Admin(t).AlterTopicConfigs(t.Context(), []kadm.AlterConfig{
		{Name: "compression.type", Value: &codec}, {Name: "compression.zstd.level", Value: &level},
	}, requests); err != nil {
		t.Fatal(err)
	}
	produce(t, c.Client(t), request(requests, "by-topic", "v", header("timer-after", "1ms"), to(out)))
	if got := emissions.WaitFor(3, arrive); len(got) != 3 {
		t.Errorf("%d of 3 timers have fired", len(got))
	}
	in.Ready(1, arrive)
}

// Whatever a broker takes into a request topic, intact or not, in a transaction that is aborted or in none: what
// Kafka's own consumer reads is looked at, everything else is one dead letter for its batch, and timers fire before it
// and behind it. See internal/kafkatest/corpus for what is written.
func TestWhatBrokersTakeStopsNobody(t *testing.T) {
	t.Parallel()
	c := kafkatest.Shared(t)
	requests := c.CreateTopic(t, 1, map[string]*string{"retention.ms": kadm.StringPtr("-1")}) // some timestamps are old
	out := c.CreateTopic(t, 1, nil, requests+"-out")
	in := serve(t, rig.Config(t, c.Seeds(), requests), 1)
	cl := c.Client(t)
	emissions := kafkatest.Collect(t, c, out)
	letters := kafkatest.Collect(t, c, requests+deadSuffix)
	details, err := c.Admin(t).ListTopics(t.Context(), requests)
	if err != nil {
		t.Fatal(err)
	}
	id := details[requests].ID
	timers := 0
	sound := func() int64 {
		r := request(requests, fmt.Sprint("timer-", timers), "v", header("timer-after", "1ms"), to(out))
		timers++
		produce(t, cl, r)
		return r.Offset
	}
	produce(t, cl, request(requests, "long before", "v", header("timer-after", "20s"), to(out)))
	timers++
	type batch struct {
		behind int64 // the offset of the sound record before it; a marker may stand between them
		name   string
	}
	var unread []batch
	for n, cs := range corpus.Cases() {
		verdict := corpus.Verdicts()[cs.Name]
		if !verdict.Taken() || cs.Config != nil || cs.Group() == "large" || cs.Group() == "java" && n%10 > 0 {
			continue
		}
		before := sound()
		if err := corpus.Produce(t.Context(), cl, requests, id, 0, cs.Batch(corpus.Nobody(time.Now()))); err != nil {
			t.Fatalf("%s: %v", cs.Name, err)
		}
		if strings.HasPrefix(verdict.Service, "dead letter ") {
			unread = append(unread, batch{before, cs.Name})
		}
		if verdict.Aborted != "0 records" {
			continue
		}
		if err := corpus.Transact(t.Context(), cl, fmt.Sprint(requests, "-", n), requests, id, 0, cs,
			corpus.Nobody(time.Now()), false); err != nil {
			t.Fatalf("%s: %v", cs.Name, err)
		}
	}
	sound()
	if got := emissions.WaitFor(timers, arrive); len(got) != timers {
		t.Errorf("%d of %d timers have fired", len(got), timers)
	}
	in.Ready(1, arrive)
	awaitMetric := func() float64 {
		return in.Metric("waterclock_dead_letters_total", "reason", string(waterclock.ReasonBatchUnreadable))
	}
	awaitCount(t, "dead letters of batches",
		func() (float64, bool) { n := awaitMetric(); return n, n >= float64(len(unread)) })
	letters.CatchUp()
	for _, l := range letters.Records() {
		d, err := waterclock.ParseDeadLetter(l.Record)
		if err != nil {
			t.Fatal(err)
		}
		if d.Reason != waterclock.ReasonBatchUnreadable {
			continue // a record that is no request
		}
		i, _ := slices.BinarySearchFunc(
			unread, d.Source.Offset, func(b batch, at int64) int { return cmp.Compare(b.behind, at) })
		offsets := fmt.Sprintf(" offsets %d to %d ", d.Source.Offset, d.Source.Offset+2)
		if i == 0 || unread[i-1].name == "" || l.Key != nil || l.Value != nil || !strings.Contains(d.Detail, offsets) {
			t.Errorf("a dead letter for %v: %s", d.Source, d.Detail)
			continue
		}
		unread[i-1].name = ""
	}
	for _, b := range unread {
		if b.name != "" {
			t.Errorf("%s, behind offset %d, has no dead letter", b.name, b.behind)
		}
	}
}
