package commands

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/node/config"
)

// tailPatience bounds every wait of a test.
const tailPatience = 30 * time.Second

// tailed is a Tail that runs.
type tailed struct {
	out, notes noted
	end        context.CancelFunc
	done       chan error
}

// noted is a buffer that one goroutine writes while another reads it. mu guards b.
type noted struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (n *noted) Write(b []byte) (int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.b.Write(b)
}

func (n *noted) String() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.b.String()
}

// startTail starts a Tail of the topic orders, and returns once the note says the words.
func startTail(t *testing.T, c *kfake.Cluster, o TailOptions, words string) *tailed {
	t.Helper()
	s := &tailed{done: make(chan error, 1)}
	o.Topic, o.Notes = "orders", &s.notes
	ctx, cancel := context.WithCancel(t.Context())
	s.end = cancel
	cfg := &config.Config{Brokers: c.ListenAddrs()}
	go func() { s.done <- Tail(ctx, cfg, o, &s.out) }()
	t.Cleanup(cancel)
	await.Until(t, tailPatience, words, func() bool {
		return strings.Contains(s.notes.String(), words) || len(s.done) > 0
	})
	return s
}

// wait returns how a Tail has ended.
func (ta *tailed) wait(t *testing.T) error {
	t.Helper()
	select {
	case err := <-ta.done:
		return err
	case <-time.After(tailPatience):
		t.Fatalf("does not end: %s%s", ta.notes.String(), ta.out.String())
		return nil
	}
}

// prints wants a Tail to have ended without an error, and to have printed some words and not another.
func (ta *tailed) prints(t *testing.T, err error, not string, words ...string) {
	t.Helper()
	out := ta.out.String()
	if err != nil || strings.Contains(out, not) {
		t.Errorf("%v: %s", err, out)
	}
	for _, word := range words {
		if !strings.Contains(out, word) {
			t.Errorf("%s lacks %s", out, word)
		}
	}
}

// emission is a record that a timer has written to partition p of orders, late by 12 ms.
func emission(p int32, id string, value []byte, more ...kgo.RecordHeader) *kgo.Record {
	at := time.UnixMilli(1_790_000_000_000)
	r := &kgo.Record{Topic: "orders", Partition: p, Key: []byte(id), Value: value}
	r.Timestamp = at.Add(12 * time.Millisecond)
	for _, h := range [][2]string{
		{waterclock.HeaderID, id}, {waterclock.HeaderDue, fmt.Sprint(at.UnixMilli())},
		{waterclock.HeaderOccurrence, "3"}, {waterclock.HeaderSource, "timers/0/7"}, {waterclock.HeaderEvent, "e.1"},
	} {
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: h[0], Value: []byte(h[1])})
	}
	r.Headers = append(r.Headers, more...)
	return r
}

func tailCluster(t *testing.T, seed bool) (*kfake.Cluster, *kgo.Client) {
	t.Helper()
	opts := []kfake.Opt{kfake.NumBrokers(1)}
	if seed {
		opts = append(opts, kfake.SeedTopics(2, "orders"))
	}
	c, err := kfake.NewCluster(opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c, kafkatest.Client(t, kgo.SeedBrokers(c.ListenAddrs()...), kgo.RecordPartitioner(kgo.ManualPartitioner()))
}

func produce(t *testing.T, cl *kgo.Client, records ...*kgo.Record) {
	t.Helper()
	if err := cl.ProduceSync(t.Context(), records...).FirstErr(); err != nil {
		t.Fatal(err)
	}
}

// Emissions are printed with decoded headers, and other records as they are.
func TestTailPrintsEmissionsAndOthers(t *testing.T) {
	c, cl := tailCluster(t, true)
	foreign := &kgo.Record{Topic: "orders", Timestamp: time.UnixMilli(1_790_000_001_000), Value: []byte("plain\ntext"),
		Headers: []kgo.RecordHeader{{Key: "h", Value: []byte{0xff}}, {Key: "none"}}}
	trace := kgo.RecordHeader{Key: "trace", Value: []byte("17")}
	produce(t, cl, emission(0, "a1", []byte("{\n \"order\": 17}"), trace), foreign)
	for _, tt := range []struct {
		name string
		json bool
		want string
	}{
		{"text", false, "" +
			`2026-09-21T14:13:20.012Z orders/0/0 timer a1, due 2026-09-21T14:13:20.000Z, 12ms late, occurrence 3
  key      a1
  header   trace=17
  payload  {"order":17}
2026-09-21T14:13:21.000Z orders/0/1 not from a timer
  key      null
  header   h="\xff"
  header   none=null
  payload  "plain\ntext"
`},
		{"JSON", true, `{"topic":"orders","partition":0,"offset":0,"at":"2026-09-21T14:13:20.012Z",` +
			`"timer":{"id":"a1","due":"2026-09-21T14:13:20.000Z","lateness":12,"occurrence":3,` +
			`"source":"timers/0/7","event":"e.1"},` +
			`"key":"a1","headers":[{"name":"trace","value":"17"}],"payload":{"bytes":15,"json":{"order":17}}}
{"topic":"orders","partition":0,"offset":1,"at":"2026-09-21T14:13:21.000Z",` +
			`"key":null,"headers":[{"name":"h","valueBase64":"/w=="},{"name":"none","valueNull":true}],` +
			`"payload":{"bytes":10,"text":"plain\ntext"}}
`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o := TailOptions{FromBeginning: true, Count: 2, JSON: tt.json}
			s := startTail(t, c, o, "Reading topic orders from its beginning")
			if err := s.wait(t); err != nil || s.out.String() != tt.want {
				t.Errorf("%v, %s, want %s", err, s.out.String(), tt.want)
			}
		})
	}
}

// Without options only new records are printed, until an interrupt, which is no error.
func TestTailFromNowOn(t *testing.T) {
	c, cl := tailCluster(t, true)
	produce(t, cl, emission(0, "old", nil), emission(1, "old", nil))
	s := startTail(t, c, TailOptions{}, "Reading topic orders from now on")
	produce(t, cl, emission(1, "new", nil))
	await.Until(t, tailPatience, "the new one", func() bool { return strings.Contains(s.out.String(), "payload") })
	s.end()
	s.prints(t, s.wait(t), "old", "timer new,")
}

// With a time, records begin there on each partition, even if none is as new.
func TestTailSince(t *testing.T) {
	c, cl := tailCluster(t, true)
	recent := emission(0, "recent", nil)
	recent.Timestamp = time.Now()
	produce(t, cl, emission(0, "old", nil), recent, emission(1, "old", nil))
	s := startTail(t, c, TailOptions{Since: time.Now().Add(-time.Hour), Count: 2}, "Reading topic orders since 20")
	produce(t, cl, emission(1, "next", nil))
	s.prints(t, s.wait(t), "old", "timer recent,", "timer next,")
}

// A topic that is made later is waited for, and read from its beginning.
func TestTailWaitsForItsTopic(t *testing.T) {
	c, cl := tailCluster(t, false)
	s := startTail(t, c, TailOptions{Count: 1}, "There is no topic orders yet: waiting for it")
	if _, err := kadm.NewClient(cl).CreateTopic(t.Context(), 2, 1, nil, "orders"); err != nil {
		t.Fatal(err)
	}
	produce(t, cl, emission(1, "first", nil))
	if err := s.wait(t); err != nil || !strings.Contains(s.out.String(), "timer first,") {
		t.Errorf("%v: %s", err, s.out.String())
	}
}

// The records of a transaction are printed when it is committed, even if it was open at the start. Those of an aborted
// one are not.
func TestTailReadsCommitted(t *testing.T) {
	c, _ := tailCluster(t, true)
	cl := kafkatest.Client(t, kgo.SeedBrokers(c.ListenAddrs()...), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.TransactionalID("x"))
	transact := func(id string, end kgo.TransactionEndTry, within func()) {
		t.Helper()
		if err := cl.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		produce(t, cl, emission(0, id, nil))
		within()
		if err := cl.EndTransaction(t.Context(), end); err != nil {
			t.Fatal(err)
		}
	}
	var s *tailed
	transact("open", kgo.TryCommit, func() { s = startTail(t, c, TailOptions{Count: 2}, "from now on") })
	transact("aborted", kgo.TryAbort, func() {})
	transact("committed", kgo.TryCommit, func() {})
	s.prints(t, s.wait(t), "aborted", "timer open,", "timer committed,")
}

// A topic that is deleted ends it with a sentence, also if no fetch has seen the topic.
func TestTailOfADeletedTopic(t *testing.T) {
	for name, read := range map[string]bool{"before its first fetch": false, "while it is read": true} {
		t.Run(name, func(t *testing.T) {
			c, cl := tailCluster(t, true)
			remove := func() {
				if _, err := kadm.NewClient(cl).DeleteTopics(t.Context(), "orders"); err != nil {
					t.Error(err)
				}
			}
			var out noted
			notes := writerFunc(func(b []byte) (int, error) {
				if !read {
					remove()
				}
				return len(b), nil
			})
			printed := writerFunc(func(b []byte) (int, error) {
				remove()
				return out.Write(b)
			})
			if read {
				produce(t, cl, emission(0, "a", nil))
			}
			ctx, cancel := context.WithTimeout(t.Context(), tailPatience)
			defer cancel()
			o := TailOptions{Topic: "orders", FromBeginning: read, Notes: notes}
			err := Tail(ctx, &config.Config{Brokers: c.ListenAddrs()}, o, printed)
			if err == nil || err.Error() != "topic orders was deleted" {
				t.Errorf("%v: %s", err, out.String())
			}
		})
	}
}

// writerFunc is a function that is a writer.
type writerFunc func([]byte) (int, error)

func (w writerFunc) Write(b []byte) (int, error) { return w(b) }

// A name that no topic can have is refused before a broker is asked.
func TestTailRefusesNames(t *testing.T) {
	for _, name := range []string{"", "a b", "a/0", "..", strings.Repeat("x", 250)} {
		err := Tail(t.Context(), &config.Config{}, TailOptions{Topic: name}, nil)
		if !errors.Is(err, config.ErrInvalid) {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// Payloads are shown readably, on one line, and none controls the terminal.
func TestPayloadLine(t *testing.T) {
	for _, c := range []struct {
		name string
		in   []byte
		want string
	}{
		{"JSON", []byte("{\n  \"a\": [1, 2.50, 12345678901234567890]\n}"), `{"a":[1,2.50,12345678901234567890]}`},
		{"JSON beyond ASCII", []byte(`{"a":"Grüße <b>"}`), `{"a":"Grüße <b>"}`},
		{"JSON that moves text", []byte("{\"a\":\"\u202e\u009b\"}"), `"{\"a\":\"\u202e\u009b\"}"`},
		{"text", []byte("good morning"), "good morning"},
		{"lines", []byte("a\r\nb"), `"a\r\nb"`},
		{"an escape", []byte("\x1b[2J"), `"\x1b[2J"`},
		{"bytes", []byte{0xff, 0, 1}, "3 bytes, in base64: /wAB"},
		{"null", nil, "null, a tombstone"},
		{"empty", []byte{}, "empty"},
		{"long", bytes.Repeat([]byte("é"), tailShown),
			strings.Repeat("é", tailShown/2) + " ... (all of it with --json)"},
	} {
		if got := payloadLine(c.in); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

// Records of several partitions are printed by time, and those of one partition in its order.
func TestByTime(t *testing.T) {
	at := func(p int32, offset, ms int64) *kgo.Record {
		return &kgo.Record{Topic: "orders", Partition: p, Offset: offset, Timestamp: time.UnixMilli(ms)}
	}
	fetches := kgo.Fetches{{Topics: []kgo.FetchTopic{{Topic: "orders", Partitions: []kgo.FetchPartition{
		{Partition: 0, Records: []*kgo.Record{at(0, 0, 10), at(0, 1, 30), at(0, 2, 5), at(0, 3, 50)}},
		{Partition: 1, Records: []*kgo.Record{at(1, 0, 20), at(1, 1, 40)}},
	}}}}}
	var got []string
	for _, r := range byTime(fetches) {
		got = append(got, fmt.Sprintf("%d/%d", r.Partition, r.Offset))
	}
	if want := "0/0 1/0 0/1 0/2 1/1 0/3"; strings.Join(got, " ") != want {
		t.Errorf("%v, want %s", got, want)
	}
}
