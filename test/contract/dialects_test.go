package contract

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/node/config"
	"github.com/waterclock/waterclock/test/rig"
)

// soon is how far ahead the timers of these tests are due: whole seconds, for
// those who count in them.
func soon() time.Time { return time.Now().Add(4 * time.Second).Truncate(time.Second) }

// spoken is what is said in one dialect.
type spoken struct {
	dialect config.Dialect
	due     int64 // of what fires; 0: a moment after it was written
	// fires becomes one emission with key, value and headers; cancelled is taken
	// back by cancel; refused becomes a dead letter.
	fires, cancelled, cancel, refused *kgo.Record
	key                               []byte
	value                             string
	headers                           []kgo.RecordHeader
	reason                            waterclock.Reason
}

// TestDialectsOnABroker: requests of each dialect on a topic of its own, one that
// fires, one that is cancelled and one that is refused, on one instance.
func TestDialectsOnABroker(t *testing.T) {
	t.Parallel()
	c := kafkatest.Shared(t)
	out := c.CreateTopic(t, 3, nil)
	text := func(at time.Time) string { return at.UTC().Format(time.RFC3339) }
	seconds := func(at time.Time) string { return strconv.FormatInt(at.Unix(), 10) }
	millis := func(at time.Time) string { return strconv.FormatInt(at.UnixMilli(), 10) }
	json := func(at time.Time) string {
		return fmt.Sprintf(`{"time":%d,"topic":%q,"key":"dmlkMQ==","value":"dmlkZW8=","headers":{"a":"Yg=="}}`,
			at.UnixMilli(), out)
	}
	avro := func(at time.Time) string {
		b := avroLong(nil, at.UnixMilli())
		for _, s := range []string{out, "vid1"} {
			b = append(avroLong(b, int64(len(s))), s...)
		}
		b = append(avroLong(b, 1), "\x0avideo\x02\x02a\x02b\x00"...)
		return string(b)
	}
	at, far := soon(), time.Now().Add(time.Hour)
	all := []spoken{
		{
			dialect: config.DialectETF1, due: at.UnixMilli(), key: []byte("vid1"), value: "video",
			reason: waterclock.ReasonBeyondHorizon,
			fires: request("", "fires", "video", header("scheduler-epoch", seconds(at)), header(
				"scheduler-target-topic", out), header("scheduler-target-key", "vid1"), header("a", "b")),
			cancelled: request("", "cancelled", "video", header("scheduler-epoch", seconds(at)),
				header("scheduler-target-topic", out), header("scheduler-target-key", "vid1")),
			cancel: &kgo.Record{Key: []byte("cancelled"),
				Headers: []kgo.RecordHeader{header("scheduler-epoch", seconds(at)),
					header("scheduler-target-topic", out)}},
			refused: request("", "refused", "video", header("scheduler-epoch", millis(at)),
				header("scheduler-target-topic", out), header("scheduler-target-key", "vid1")),
			headers: []kgo.RecordHeader{header("a", "b"), header("scheduler-timestamp", ""),
				header("scheduler-key", "fires"), header("scheduler-topic", "")},
		},
		{
			dialect: config.DialectSky, due: at.UnixMilli(), key: []byte("vid1"), value: "video",
			reason:    waterclock.ReasonBadValue,
			fires:     request("", "fires", avro(at), header("trace", "x")),
			cancelled: request("", "cancelled", avro(far)),
			cancel: &kgo.Record{Key: []byte("cancelled"),
				Headers: []kgo.RecordHeader{header("schedule:expired", "true")}},
			refused: request("", "refused", "video"),
			headers: []kgo.RecordHeader{header("a", "b")},
		},
		{
			dialect: config.DialectSkyJSON, due: at.UnixMilli(), key: []byte("vid1"), value: "video",
			reason: waterclock.ReasonBadValue,
			fires:  request("", "fires", json(at)), cancelled: request("", "cancelled", json(far)),
			cancel: &kgo.Record{Key: []byte("cancelled")}, refused: request("", "refused", "video"),
			headers: []kgo.RecordHeader{header("a", "b")},
		},
		{
			dialect: config.DialectRabbitMQ, key: []byte("fires"), value: "video", reason: waterclock.ReasonBadDuration,
			fires:     request("", "fires", "video", header("x-delay", "1500"), header("a", "b")),
			cancelled: request("", "cancelled", "video", header("x-delay", "3600000")),
			cancel:    &kgo.Record{Key: []byte("cancelled")},
			refused:   request("", "refused", "video", header("x-delay", "soon")),
			headers:   []kgo.RecordHeader{header("a", "b")},
		},
		{
			dialect: config.DialectNATS, due: at.UnixMilli(), key: []byte("fires"), value: "video",
			reason: waterclock.ReasonUnsupported,
			fires: request("", "fires", "video", header("Nats-Schedule", "@at "+text(at)),
				header("Nats-Schedule-Target", out), header("a", "b")),
			cancelled: request("", "cancelled", "video", header("Nats-Schedule", "@at "+text(far)),
				header("Nats-Schedule-Target", out)),
			cancel: &kgo.Record{Key: []byte("cancelled")},
			refused: request("", "refused", "video", header("Nats-Schedule", "@hourly"),
				header("Nats-Schedule-Target", out), header("Nats-Schedule-TTL", "5m")),
			headers: []kgo.RecordHeader{header("a", "b")},
		},
		{
			dialect: config.DialectPulsar, due: at.UnixMilli(), key: []byte("fires"), value: "video",
			reason:    waterclock.ReasonSecondsNotMillis,
			fires:     request("", "fires", "video", header("deliverAt", millis(at)), header("a", "b")),
			cancelled: request("", "cancelled", "video", header("deliverAfterSeconds", "3600")),
			cancel:    &kgo.Record{Key: []byte("cancelled")},
			refused:   request("", "refused", "video", header("deliverAt", seconds(at))),
			headers:   []kgo.RecordHeader{header("a", "b")},
		},
	}
	topics, letters := make([]string, len(all)), make([]string, len(all))
	for i := range all {
		topics[i] = c.CreateTopic(t, 2, nil, fmt.Sprint(kafkatest.Topic(t), "-", all[i].dialect))
		letters[i] = topics[i] + "-failed"
	}
	cfg := rig.Config(t, c.Seeds(), topics...)
	cfg.Targets = []string{out}
	cfg.Tenants = map[string]config.Policy{}
	for i := range all {
		p := cfg.PolicyOf(topics[i])
		p.Dialect, p.DefaultTarget, p.DeadLetters = all[i].dialect, out, letters[i]
		cfg.Tenants[topics[i]] = p
	}
	in := serve(t, cfg, 2*len(all))
	client := c.Client(t)
	emissions, dead := kafkatest.Collect(t, c, out), kafkatest.Collect(t, c, letters...)
	var recs []*kgo.Record
	for i := range all {
		s := &all[i]
		for _, r := range []*kgo.Record{s.fires, s.cancelled, s.cancel, s.refused} {
			r.Topic = topics[i]
			recs = append(recs, r)
		}
	}
	produce(t, client, recs...)
	emissions.WaitFor(len(all), arrive)
	dead.WaitFor(len(all), arrive)
	awaitPending(t, in, 0)
	emissions.Quiet(settled)
	for i := range all {
		s := &all[i]
		s.check(t, topics[i], letters[i], emissions.Records(), dead.Records())
	}
}

// check looks for the one emission and the one dead letter of a dialect.
func (s *spoken) check(t *testing.T, topic, letters string, emissions, dead []kafkatest.Received) {
	t.Helper()
	var fired, refused int
	for _, r := range emissions {
		if !strings.HasPrefix(r.Header("waterclock-source"), topic+"/") {
			continue
		}
		fired++
		due, _ := strconv.ParseInt(r.Header("waterclock-due"), 10, 64)
		want := s.due
		if want == 0 {
			want = s.fires.Timestamp.UnixMilli() + 1500
		}
		if due != want || !sameBytes(r.Key, s.key) || string(r.Value) != s.value || r.Timestamp.UnixMilli() < due {
			t.Errorf("%s: due %d, want %d; key %s, value %s", s.dialect, due, want, show(r.Key), show(r.Value))
		}
		headers := slices.Clone(r.Headers[:len(r.Headers)-5]) // without ours
		for i, h := range headers {
			if h.Key == "scheduler-timestamp" && string(h.Value) == strconv.FormatInt(s.fires.Timestamp.Unix(), 10) ||
				h.Key == "scheduler-topic" && string(h.Value) == topic {
				headers[i].Value = []byte{}
			}
		}
		if !slices.EqualFunc(headers, s.headers, sameHeader) {
			t.Errorf("%s: headers %q, want %q", s.dialect, headers, s.headers)
		}
	}
	for _, r := range dead {
		if r.Topic != letters {
			continue
		}
		refused++
		if got := r.Header("waterclock-reason"); got != string(s.reason) || !sameBytes(r.Value, s.refused.Value) ||
			!slices.EqualFunc(r.Headers[:len(s.refused.Headers)], s.refused.Headers, sameHeader) {
			t.Errorf("%s: a dead letter %q: %s, value %s", s.dialect, r.Headers, got, show(r.Value))
		}
	}
	if fired != 1 || refused != 1 {
		t.Errorf("%s: %d emissions and %d dead letters, want one of each", s.dialect, fired, refused)
	}
}

// avroLong is Avro's zig-zag number.
func avroLong(b []byte, n int64) []byte {
	u := uint64(n)<<1 ^ uint64(n>>63)
	for ; u >= 0x80; u >>= 7 {
		b = append(b, byte(u)|0x80)
	}
	return append(b, byte(u))
}

// TestETF1ReadmesProducer builds a producer as the readme of etf1's scheduler has
// it, with the client that is used there, and lets it write to a request topic:
// what it schedules fires, what it deletes does not, though that client's
// partitioner is not murmur2.
func TestETF1ReadmesProducer(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it builds a program with another client")
	}
	program := buildETF1(t)
	c := kafkatest.Shared(t)
	requests, out := c.CreateTopic(t, 4, nil), c.CreateTopic(t, 3, nil, kafkatest.Topic(t)+"-out")
	cfg := rig.Config(t, c.Seeds(), requests)
	p := cfg.PolicyOf(requests)
	p.Dialect = config.DialectETF1
	cfg.Tenants = map[string]config.Policy{requests: p}
	in := serve(t, cfg, 4)
	emissions := kafkatest.Collect(t, c, out)
	const each = 50
	at := soon().Add(2 * time.Second)
	cmd := exec.Command(program, strings.Join(c.Seeds(), ","), requests, out, strconv.FormatInt(at.Unix(), 10),
		strconv.Itoa(each))
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	emissions.WaitFor(each, arrive)
	awaitPending(t, in, 0)
	emissions.Quiet(settled)
	seen := map[string]bool{}
	for _, r := range emissions.Records() {
		id := r.Header("scheduler-key")
		n, kept := strings.CutPrefix(id, "kept-")
		if !kept || seen[id] || string(r.Key) != "video-"+n || string(r.Value) != "some value "+n ||
			r.Timestamp.Before(at) || r.Header("scheduler-topic") != requests {
			t.Errorf("emission %s: key %s, value %s, headers %q", id, show(r.Key), show(r.Value), r.Headers)
		}
		seen[id] = true
	}
	if len(seen) != each {
		t.Errorf("%d of %d have fired", len(seen), each)
	}
	if n := in.Metric("waterclock_dead_letters_total"); n != 0 {
		t.Errorf("%v dead letters", n)
	}
}

// buildETF1 builds the program of testdata/etf1, which is a module of its own: its
// client needs cgo.
func buildETF1(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"main.go", "go.mod"} {
		b, err := os.ReadFile(filepath.Join("testdata", "etf1", name+".txt"))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	build := exec.Command("go", "build", "-mod=mod", "-o", "producer", ".")
	build.Dir, build.Env = dir, append(os.Environ(), "CGO_ENABLED=1", "GOFLAGS=", "GOWORK=off")
	if out, err := build.CombinedOutput(); err != nil {
		t.Skipf("the program of testdata/etf1 is not run: its client is not here, or cannot be built: %v\n%s", err, out)
	}
	return filepath.Join(dir, "producer")
}
