package contract

import (
	"fmt"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/corpus"
)

// Whatever a broker takes into a request topic, intact or not, in a transaction that is aborted or in none: what
// Kafka's own consumer reads is looked at, everything else is one dead letter for its batch, and timers fire before it
// and behind it. See internal/kafkatest/corpus for what is written.
func TestWhatBrokersTakeStopsNobody(t *testing.T) {
	t.Parallel()
	s := newSetup(t, kafkatest.Shared(t), 1, 1, "retention.ms", "-1") // some timestamps are old
	s.serve(s.Config(), 1)
	details, err := s.Cluster.Admin(t).ListTopics(t.Context(), s.Requests)
	if err != nil {
		t.Fatal(err)
	}
	id := details[s.Requests].ID
	timers := 0
	sound := func(in string) int64 {
		r := after(s.Requests, fmt.Sprint("timer-", timers), in, s.Target)
		timers++
		s.Send(r)
		return r.Offset
	}
	sound("20s")
	unread := make(map[int64]string) // by the offset of the sound record before it
	for n, cs := range corpus.Cases() {
		verdict := corpus.Verdicts()[cs.Name]
		if !verdict.Taken() || cs.Config != nil || cs.Group() == "large" ||
			cs.Group() == "java" && n%10 > 0 && !strings.Contains(cs.Name, "zstd level 22") { // the largest window
			continue
		}
		before, now := sound("1ms"), corpus.Nobody(time.Now())
		err := corpus.Produce(t.Context(), s.Client, s.Requests, id, 0, cs.Batch(now))
		if strings.HasPrefix(verdict.Service, "dead letter ") {
			unread[before] = cs.Name
		}
		if err == nil && verdict.Aborted == "0 records" {
			err = corpus.Transact(t.Context(), s.Client, fmt.Sprint(s.Requests, "-", n), s.Requests, id, 0, cs, now,
				false)
		}
		if err != nil {
			t.Fatalf("%s: %v", cs.Name, err)
		}
	}
	sound("1ms")
	s.Out.WaitFor(timers, patience)
	s.in.Ready(1, patience)
	s.awaitMetric(float64(len(unread)), "waterclock_dead_letters_total", "reason",
		string(waterclock.ReasonBatchUnreadable))
	s.dead.CatchUp()
	for _, l := range s.dead.Records() {
		d, err := waterclock.ParseDeadLetter(l.Record)
		if err != nil {
			t.Fatal(err)
		}
		if d.Reason != waterclock.ReasonBatchUnreadable {
			continue // a record that is no request
		}
		at := d.Source.Offset
		before := at - 1
		for unread[before] == "" && before > at-3 { // a marker may stand between them
			before--
		}
		if unread[before] == "" || l.Key != nil || l.Value != nil ||
			!strings.Contains(d.Detail, fmt.Sprintf(" offsets %d to %d ", at, at+2)) {
			t.Errorf("a dead letter for %v: %s", d.Source, d.Detail)
		}
		delete(unread, before)
	}
	for before, name := range unread {
		t.Errorf("%s, behind offset %d, has no dead letter", name, before)
	}
}

// TestRequestsOfMaximalSize: a request as large as its topic takes is emitted byte for byte where the target takes it,
// and with a bad header ends as a dead letter that is whole.
func TestRequestsOfMaximalSize(t *testing.T) {
	t.Parallel()
	const largest = 300_000
	limit := fmt.Sprint(largest)
	s := newSetup(t, kafkatest.Shared(t), 2, 3, "max.message.bytes", limit)
	kafkatest.SetTopic(t, s.Cluster.Admin(t), s.Target, "max.message.bytes", "1000000")
	probe := s.target("probe", 2, "max.message.bytes", limit)
	s.serve(s.Config(), 2)
	s.Client = s.Cluster.Client(t, kgo.ProducerBatchCompression(kgo.NoCompression()),
		kgo.ProducerBatchMaxBytes(2*largest), kgo.MaxBufferedRecords(1))
	bytes := noise(largest)
	// fill gives a request the longest value that a topic of this limit takes.
	fill := func(w want) want {
		w.request.Value = bytes[:sort.Search(largest, func(n int) bool {
			r := *w.request
			r.Topic, r.Value = probe, bytes[:n+1]
			return s.Client.ProduceSync(t.Context(), &r).FirstErr() != nil
		})]
		w.value = w.request.Value
		return w
	}
	due := time.Now().Add(2 * time.Second).UnixMilli()
	good, spoilt, many := s.schedule("good", "", due), s.schedule("bad", "", due), s.schedule("many headers", "", due)
	for i := range 100 {
		many.headers = append(many.headers, header(fmt.Sprint("passed-", i), string(bytes[i*600:(i+1)*600])))
	}
	many.request.Headers = append(many.request.Headers, many.headers...)
	spoilt.request.Headers = append(spoilt.request.Headers, header("timer-misspelt", "1"))
	spoilt.refused = waterclock.ReasonUnknownHeader
	s.send(fill(good), fill(spoilt), fill(many), s.schedule("neighbour", "small", due))
	s.end(len(s.sent))
	b := bad{reason: spoilt.refused}
	if faults := b.faults(spoilt.request, due, s.dead.Records()[0]); len(faults) > 0 {
		t.Errorf("the dead letter of the largest request: %q", faults)
	}
}
