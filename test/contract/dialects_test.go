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

// soon is how far ahead the timers of these tests are due: whole seconds, for those who count in them.
func soon() time.Time { return time.Now().Add(4 * time.Second).Truncate(time.Second) }

// TestDialectsOnABroker: requests of each dialect on a topic of its own, one that fires, one that is cancelled and one
// that is refused, on one instance.
func TestDialectsOnABroker(t *testing.T) {
	t.Parallel()
	s := newSetup(t, kafkatest.Shared(t), 1, 3)
	out := s.Target
	text := func(at time.Time) string { return at.UTC().Format(time.RFC3339) }
	seconds := func(at time.Time) string { return strconv.FormatInt(at.Unix(), 10) }
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
	now, at := time.Now().Truncate(time.Millisecond), soon()
	far := now.Add(time.Hour)
	says := func(id, value string, headers ...string) *kgo.Record {
		r := rig.Request("", id, value, headers...)
		r.Timestamp = now
		return r
	}
	cancel := func(headers ...string) *kgo.Record {
		r := says("cancelled", "", headers...)
		r.Value = nil
		return r
	}
	all := []struct {
		dialect                           config.Dialect
		due                               time.Time
		key                               string // of the emission, whose value is "video"
		reason                            waterclock.Reason
		fires, cancelled, cancel, refused *kgo.Record
	}{
		{config.DialectETF1, at, "vid1", waterclock.ReasonBeyondHorizon,
			says("fires", "video", "scheduler-epoch", seconds(at), "scheduler-target-topic", out,
				"scheduler-target-key", "vid1", "a", "b"),
			says("cancelled", "video", "scheduler-epoch", seconds(at), "scheduler-target-topic", out,
				"scheduler-target-key", "vid1"),
			cancel("scheduler-epoch", seconds(at), "scheduler-target-topic", out),
			says("refused", "video", "scheduler-epoch", millis(at), "scheduler-target-topic", out,
				"scheduler-target-key", "vid1")},
		{config.DialectSky, at, "vid1", waterclock.ReasonBadValue,
			says("fires", avro(at), "trace", "x"), says("cancelled", avro(far)), cancel("schedule:expired", "true"),
			says("refused", "video")},
		{config.DialectSkyJSON, at, "vid1", waterclock.ReasonBadValue,
			says("fires", json(at)), says("cancelled", json(far)), cancel(), says("refused", "video")},
		{config.DialectRabbitMQ, now.Add(1500 * time.Millisecond), "fires", waterclock.ReasonBadDuration,
			says("fires", "video", "x-delay", "1500", "a", "b"), says("cancelled", "video", "x-delay", "3600000"),
			cancel(), says("refused", "video", "x-delay", "soon")},
		{config.DialectNATS, at, "fires", waterclock.ReasonUnsupported,
			says("fires", "video", "Nats-Schedule", "@at "+text(at), "Nats-Schedule-Target", out, "a", "b"),
			says("cancelled", "video", "Nats-Schedule", "@at "+text(far), "Nats-Schedule-Target", out),
			cancel(),
			says("refused", "video", "Nats-Schedule", "@hourly", "Nats-Schedule-Target", out, "Nats-Schedule-TTL",
				"5m")},
		{config.DialectPulsar, at, "fires", waterclock.ReasonSecondsNotMillis,
			says("fires", "video", "deliverAt", millis(at), "a", "b"),
			says("cancelled", "video", "deliverAfterSeconds", "3600"),
			cancel(), says("refused", "video", "deliverAt", seconds(at))},
	}
	cfg := s.Config()
	cfg.Requests, cfg.Targets, cfg.Tenants = nil, []string{out}, make(map[string]config.Policy)
	var letters []string
	var wants []want
	s.suffix = "-failed"
	for _, x := range all {
		topic := s.Topic(fmt.Sprint(s.Requests, "-", x.dialect), 2)
		p := cfg.PolicyOf(topic)
		p.Dialect, p.DefaultTarget, p.DeadLetters = x.dialect, out, topic+s.suffix
		cfg.Requests, cfg.Tenants[topic] = append(cfg.Requests, topic), p
		letters = append(letters, p.DeadLetters)
		for _, r := range []*kgo.Record{x.fires, x.cancelled, x.cancel, x.refused} {
			r.Topic = topic
		}
		fires := want{request: x.fires, topic: out, due: x.due.UnixMilli(), partition: byKey, key: []byte(x.key),
			value: []byte("video"), headers: []kgo.RecordHeader{header("a", "b")}}
		if x.dialect == config.DialectETF1 {
			fires.headers = append(fires.headers, header("scheduler-timestamp", seconds(now)),
				header("scheduler-key", "fires"), header("scheduler-topic", topic))
		}
		wants = append(wants, fires, want{request: x.cancelled}, want{request: x.cancel},
			want{request: x.refused, refused: x.reason})
	}
	s.dead = kafkatest.Collect(t, s.Cluster, letters...)
	s.serve(cfg, 2*len(all))
	s.send(wants...)
	s.end(len(wants))
	_, refused := s.asked()
	for _, l := range s.dead.Records() {
		headers := refused[l.Header("waterclock-source")].request.Headers
		if !slices.EqualFunc(l.Headers[:len(headers)], headers, sameHeader) {
			t.Errorf("%s: a dead letter %q", l.Topic, l.Headers)
		}
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

// TestETF1ReadmesProducer builds a producer as the readme of etf1's scheduler has it, with the client that is used
// there, and lets it write to a request topic: what it schedules fires, what it deletes does not, though that client's
// partitioner is not murmur2.
func TestETF1ReadmesProducer(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it builds a program with another client")
	}
	program := buildETF1(t)
	s := newSetup(t, kafkatest.Shared(t), 4, 3)
	s.serve(s.policy(func(p *config.Policy) { p.Dialect = config.DialectETF1 }), 4)
	const each = 50
	at := soon().Add(2 * time.Second)
	cmd := exec.Command(program, strings.Join(s.Cluster.Seeds(), ","), s.Requests, s.Target,
		strconv.FormatInt(at.Unix(), 10), strconv.Itoa(each))
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	s.Out.WaitFor(each, patience)
	s.in.Balanced(0)
	s.Out.Quiet(quiet)
	s.dead.Quiet(0)
	seen := map[string]bool{}
	for _, r := range s.Out.Records() {
		id := r.Header("scheduler-key")
		n, kept := strings.CutPrefix(id, "kept-")
		if !kept || seen[id] || string(r.Key) != "video-"+n || string(r.Value) != "some value "+n ||
			r.Timestamp.Before(at) || r.Header("scheduler-topic") != s.Requests {
			t.Errorf("emission %s: key %s, value %s, headers %q", id, show(r.Key), show(r.Value), r.Headers)
		}
		seen[id] = true
	}
	if len(seen) != each || len(s.dead.Records()) > 0 {
		t.Errorf("%d of %d have fired; %d dead letters", len(seen), each, len(s.dead.Records()))
	}
}

// buildETF1 builds the program of testdata/etf1, which is a module of its own: its client needs cgo.
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
