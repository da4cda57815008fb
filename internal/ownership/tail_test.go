package ownership

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"

	"github.com/waterclock/waterclock/emitter"
	"github.com/waterclock/waterclock/internal/kafka/partlog"
	"github.com/waterclock/waterclock/internal/kafka/wire"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/kafkatest/runs"
)

// sharedLog is a changelog partition to which an owner and a stranger write. Each record is a number of its own. The
// stranger's claim is ClaimRecords consecutive records.
type sharedLog struct {
	records []int
	written int           // records so far, those that are lost included
	markers int           // ours, to be written
	claims  []int         // the last record of each claim
	leader  partlog.Epoch // of the present leader
}

func (s *sharedLog) end() int64 { return int64(len(s.records)) }

func (s *sharedLog) write(n int) {
	for range n {
		s.written++
		s.records = append(s.records, s.written)
	}
}

// claim is the stranger's.
func (s *sharedLog) claim() {
	s.write(wire.ClaimRecords)
	s.claims = append(s.claims, s.written)
}

// claimed reports whether the log has a claim.
func (s *sharedLog) claimed() bool {
	return slices.ContainsFunc(s.claims, func(c int) bool { return slices.Contains(s.records, c) })
}

// step writes n records of ours, in up to two parts, and calls between between them.
func (s *sharedLog) step(n, first int, between func()) (records []*kgo.Record) {
	for i := range n {
		if i == first {
			between()
		}
		records = append(records, &kgo.Record{Offset: s.end()})
		s.write(1)
		records[i].Value = fmt.Append(nil, s.written)
	}
	return records
}

// cut has the log lose records. Its next leader has a higher epoch.
func (s *sharedLog) cut(n int) {
	s.records = s.records[:max(0, len(s.records)-n)]
	s.leader++
}

// has answers a look: whether our last record stands where it was acknowledged.
func (s *sharedLog) has(t *tail) bool {
	return t.acked <= s.end() && string(t.last) == fmt.Sprint(s.records[t.acked-1])
}

// Steps, late markers, aborted records of strangers, claims and cuts are interleaved in any order. No step passes whose
// last record stands behind a claim, or while the log lacks our last one. After a look an owner that was not overtaken
// goes on.
func TestNoStepPassesBehindAClaim(t *testing.T) {
	seen := make(map[string]int)
	runs.Checks(t, 500) // a fifth of them with -short, and each case below must come
	rapid.Check(t, func(t *rapid.T) {
		log := &sharedLog{leader: 1}
		log.write(1) // our claim
		var tl tail
		tl.begin(Claimed{Behind: log.end(), Value: fmt.Append(nil, log.written), Leader: log.leader})
		marker := func() {
			if log.markers > 0 {
				log.markers--
				log.write(1)
			}
		}
		slow := rapid.IntRange(0, 20).Draw(t, "how slow markers are")
		cuts := rapid.IntRange(0, 30).Draw(t, "how seldom the log is cut")
		stranger := func() {
			if rapid.IntRange(0, slow).Draw(t, "marker") == 0 {
				marker()
			}
			switch rapid.IntRange(0, 29+cuts).Draw(t, "between") {
			case 0:
				log.write(rapid.IntRange(1, wire.ClaimRecords-1).Draw(t, "strange")) // aborted attempts
			case 1:
				log.claim()
				log.write(rapid.IntRange(0, 1).Draw(t, "its marker"))
			case 2, 3, 4:
				n := rapid.IntRange(1, 20).Draw(t, "lost")
				was := log.end()
				log.cut(n)
				if rapid.Bool().Draw(t, "filled up by a claim and a step") && was-log.end() > wire.ClaimRecords {
					log.claim()
					log.write(int(was - log.end()))
				}
			}
		}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			stranger()
			n := rapid.IntRange(1, 4).Draw(t, "records")
			lost := false
			leader := log.leader
			records := log.step(n, rapid.IntRange(0, n).Draw(t, "portion"), stranger)
			for _, r := range records { // the log was cut within the step
				lost = lost || r.Offset >= log.end() || string(r.Value) != fmt.Sprint(log.records[r.Offset])
			}
			acked := rapid.IntRange(0, 9).Draw(t, "acknowledged") > 0
			if !acked {
				records[0].Offset = -1
			}
			if log.leader != leader && rapid.Bool().Draw(t, "a connection broke") {
				leader = 0
			} else {
				leader = log.leader
			}
			there := log.has(&tl)
			err := tl.check(records, leader)
			if err == nil && (log.claimed() || !there || lost) {
				t.Fatalf("a step at %d to %d passes: a claim is there: %v, our last record: %v, the step's: %v",
					records[0].Offset, log.end()-1, log.claimed(), there, !lost)
			}
			log.markers++
			switch {
			case err == nil:
				tl.passed(records)
				continue
			case errors.Is(err, errCut), !log.has(&tl):
				seen["acquired again"]++
				return
			case log.claimed():
				seen["a look finds a claim"]++
				return
			}
			if errors.Is(err, errNewLeader) {
				seen["goes on under a new leader"]++
			}
			tl.known(log.end(), log.leader)
		}
	})
	for _, what := range []string{"acquired again", "a look finds a claim", "goes on under a new leader"} {
		if seen[what] == 0 {
			t.Errorf("not once: %s", what)
		}
	}
}

// Without other writers no look is needed, whenever markers come: steps do not wait for them.
func TestOwnStepsPass(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		log := &sharedLog{}
		var tl tail
		tl.known(0, 1)
		for range rapid.IntRange(1, 100).Draw(t, "steps") {
			for log.markers > 2 || log.markers > 0 && rapid.Bool().Draw(t, "marker") {
				log.markers--
				log.write(1)
			}
			n := rapid.IntRange(1, 4).Draw(t, "records")
			records := log.step(n, rapid.IntRange(0, n).Draw(t, "portion"), func() {
				if log.markers > 0 {
					log.markers--
					log.write(1)
				}
			})
			must(t, tl.check(records, 1))
			tl.passed(records)
			log.markers++
		}
	})
}

func TestTailRefuses(t *testing.T) {
	var tl tail
	tl.known(10, 3)
	for _, c := range []struct {
		name    string
		records []*kgo.Record
		leader  partlog.Epoch
		want    error
	}{
		{"directly behind", stepAt(10, 11), 3, nil},
		{"behind all markers that may come", stepAt(10+owed, 11+owed), 3, nil},
		{"one of them between the records", stepAt(9+owed, 11+owed), 3, nil},
		{"something else before them", stepAt(11+owed, 12+owed), 3, errForeignRecords},
		{"something else between them", stepAt(10+owed, 12+owed), 3, errForeignRecords},
		{"one without an answer", stepAt(10, -1), 3, errUnacknowledged},
		{"far too low", stepAt(1, 2), 3, errForeignRecords},
		{"a producer that has not heard of the leader yet", stepAt(10, 11), 2, errNewLeader},
		{"a later leader", stepAt(10, 11), 4, errNewLeader},
		{"one that is not known", stepAt(10, 11), 0, errNewLeader},
	} {
		if err := tl.check(c.records, c.leader); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
}

// An owner notices that its changelog has lost its end, even if that is only one step. So small a loss looks like
// missing markers, and a look at the end of the log finds no other writer. Otherwise the owner would go on with steps
// that no successor has.
func TestAnOwnerNoticesThatItsChangelogWasCut(t *testing.T) {
	for _, c := range []struct {
		name    string
		records []*kgo.Record
		cut     bool
	}{
		{"behind the last step, whose marker is missing", stepAt(13, 14), false},
		{"behind the last step and its marker", stepAt(14, 15), false},
		{"in place of the last step", stepAt(11, 12), true},
		{"in place of half of it", stepAt(12, 13), true},
		{"in place of the claim", stepAt(9, 10), true},
	} {
		t.Run(c.name, func(t *testing.T) {
			l, _ := online(t)
			s := l.Steps
			s.own(Claimed{Behind: 10, Leader: 1})
			must(t, s.check(stepAt(11, 12), 1))
			s.known(12, 1) // a look forgets nothing of that
			if err := s.check(c.records, 1); errors.Is(err, errCut) != c.cut {
				t.Errorf("may be committed: %v", err)
			}
			if err := l.Failure(); errors.Is(err, errCut) != c.cut {
				t.Errorf("the partition ends with %v", err)
			}
		})
	}
}

// A log loses its end, with the claim of another group, and is filled up again to where the next step is expected. The
// step is acknowledged there, so only the leader's epoch says that something has happened. A look tells a log that was
// cut from one that has another leader.
func TestALogIsCutAndFilledUpAgain(t *testing.T) {
	for _, name := range []string{"by the claim of another group", "by steps, and the claim stands below",
		"it only has another leader"} {
		t.Run(name, func(t *testing.T) {
			filled := name != "it only has another leader"
			l, c := online(t)
			p := l.Steps.Join(ready{})
			ours, theirs := wire.Claim{Group: "g", Step: "ours"}, wire.Claim{Group: "other", Step: "theirs"}
			for i := range wire.ClaimRecords {
				switch name {
				case "by the claim of another group":
					write(t, l, wire.ClaimKey(), theirs.Values()[i])
				case "by steps, and the claim stands below":
					write(t, l, wire.CheckpointKey(), nil)
				default:
					write(t, l, wire.ClaimKey(), ours.Values()[i])
				}
			}
			leader := leads(t, l)
			l.Own(Claimed{Behind: wire.ClaimRecords, Value: ours.Values()[wire.ClaimRecords-1], Leader: leader})
			must(t, c.MoveTopicPartition(l.o.Topics.Changelog.Name, 0, 0))
			step := func(to int64, want error) {
				t.Helper()
				share := p.Seal("step", &emitter.Room{Entries: 1, Bytes: 1})
				if share == nil {
					t.Fatal("nothing is sealed")
				}
				write(t, l, wire.CheckpointKey(), nil)
				if err := l.Steps.check(stepAt(to), leader+1); !errors.Is(err, want) {
					t.Fatalf("a step that another leader has taken: %v, want %v", err, want)
				}
				outcome := emitter.Committed
				if want != nil {
					outcome = emitter.Aborted
				}
				l.Steps.ended(share, outcome)
			}
			step(wire.ClaimRecords, errNewLeader)
			if !l.Steps.Doubt() || p.Seal("step", &emitter.Room{Entries: 1, Bytes: 1}) != nil {
				t.Error("no doubt, or a share is sealed in doubt")
			}
			l.tail.look(t.Context())
			var fatal *Fatal
			switch err := l.Failure(); {
			case name == "by the claim of another group" && errors.As(err, &fatal):
			case name == "by steps, and the claim stands below" && errors.Is(err, errCut):
			case err != nil || filled:
				t.Errorf("the partition ends with %v", err)
			}
			if !filled {
				step(wire.ClaimRecords+1, nil)
			}
		})
	}
}

// A partition whose changelog has another leader, by metadata, looks at it before it seals anything, also if the epoch
// is lower, because the cluster was restored. It looks once, even if the leader that answers does not agree.
func TestANewLeaderIsLookedAtBeforeAStep(t *testing.T) {
	for name, epoch := range map[string]int32{"the next one": 8, "of a restored cluster": 6} {
		t.Run(name, func(t *testing.T) {
			b := &leader{epoch: 7}
			l := offline(b)
			p := l.Steps.Join(ready{})
			l.Own(Claimed{Behind: 1, Leader: partlog.EpochOf(7)})
			b.led(t, &l.o, 0)
			seal := func() *emitter.Share { return p.Seal("step", &emitter.Room{Entries: 1, Bytes: 1}) }
			const at = 1
			share := seal()
			if share == nil || l.Steps.check(stepAt(at), partlog.EpochOf(7)) != nil {
				t.Fatal("nothing is sealed for the leader that is known, or it may not be committed")
			}
			l.Steps.ended(share, emitter.Committed)
			share = seal()
			b.epoch = epoch
			b.led(t, &l.o, 0)
			if err := l.Steps.check(stepAt(at+2), partlog.EpochOf(7)); !errors.Is(err, errNewLeader) {
				t.Errorf("%v, of a step during which metadata has named another leader", err)
			}
			l.Steps.ended(share, emitter.Aborted)
			look := func() {
				t.Helper()
				if seal() != nil || !l.Steps.Doubt() {
					t.Error("a step is sealed for a leader that nobody has looked at")
				}
				if _, start := l.Steps.beginLook(); !start {
					t.Error("no look begins")
				}
				l.Steps.known(at+4, partlog.EpochOf(7))
			}
			look()
			if share = seal(); share == nil || l.Steps.check(stepAt(at+4), partlog.EpochOf(7)) != nil {
				t.Fatal("nothing is sealed after the look")
			}
			l.Steps.ended(share, emitter.Committed)
			b.epoch = 7
			b.led(t, &l.o, 0)
			look()
		})
	}
}

// leads returns the epoch of the changelog's leader.
func leads(t *testing.T, l *Life) partlog.Epoch {
	t.Helper()
	r := partlog.NewReader(l.o.Client, l.Changelog(), 0)
	if _, err := r.End(t.Context()); err != nil {
		t.Fatal(err)
	}
	return r.Leader()
}

// acquired is a Life whose claim is all that the changelog has.
func acquired(t *testing.T) (l *Life, c *kfake.Cluster, leader partlog.Epoch) {
	t.Helper()
	l, c = online(t)
	ours := wire.Claim{Group: "g", Step: "ours"}
	for _, value := range ours.Values() {
		write(t, l, wire.ClaimKey(), value)
	}
	leader = leads(t, l)
	l.Steps.Join(ready{})
	l.Own(Claimed{Behind: wire.ClaimRecords, Value: ours.Values()[wire.ClaimRecords-1], Leader: leader})
	return l, c, leader
}

// A broker that has not heard of its successor answers as before. Its answers say nothing about the successor's log,
// although that has said where it ends.
func TestALookTrustsNoLeaderThatItHasNotRead(t *testing.T) {
	l, c, was := acquired(t)
	l.Steps.tail.distrust(errEnd)
	asked := 0
	c.ControlKey(int16(kmsg.Metadata), func(r kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		req := r.(*kmsg.MetadataRequest)
		if asked++; asked > 1 || len(req.Topics) != 1 {
			return nil, nil, false
		}
		host, port, err := net.SplitHostPort(c.ListenAddrs()[0])
		if err != nil {
			t.Error(err)
		}
		n, err := strconv.Atoi(port)
		if err != nil {
			t.Error(err)
		}
		resp := req.ResponseKind().(*kmsg.MetadataResponse)
		b, topic, p := kmsg.NewMetadataResponseBroker(), kmsg.NewMetadataResponseTopic(),
			kmsg.NewMetadataResponseTopicPartition()
		b.Host, b.Port = host, int32(n)
		topic.Topic, topic.TopicID = &l.o.Topics.Changelog.Name, l.o.Topics.Changelog.ID
		p.LeaderEpoch = int32(was) // Kafka's number of was + 1
		topic.Partitions = append(topic.Partitions, p)
		resp.Brokers, resp.Topics = append(resp.Brokers, b), append(resp.Topics, topic)
		return resp, nil, true
	})
	c.ControlKey(int16(kmsg.ListOffsets), func(r kmsg.Request) (kmsg.Response, error, bool) {
		return endsAt(r, wire.ClaimRecords), nil, true // the successor
	})
	l.tail.look(t.Context())
	if l.Failure() != nil || l.Steps.Doubt() {
		t.Fatal(l.Failure())
	}
	if err := l.Steps.check(stepAt(wire.ClaimRecords), was+1); !errors.Is(err, errNewLeader) {
		t.Errorf("all was read from the leader of epoch %d, and of a step under %d: %v", was, was+1, err)
	}
}

// While the leader stays the same, a look does not read the same records as the last one again. Otherwise a partition
// whose steps are aborted, because a topic of its own takes no writes, would read all of them with each try.
func TestALookReadsWhatIsNew(t *testing.T) {
	l, c, _ := acquired(t)
	var last int64
	c.ControlKey(int16(kmsg.Fetch), func(r kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		last = r.(*kmsg.FetchRequest).Topics[0].Partitions[0].FetchOffset
		return nil, nil, false
	})
	const each = 20
	for i := range 4 {
		share := l.Steps.source.Seal("step", &emitter.Room{Entries: 1, Bytes: 1})
		if share == nil {
			t.Fatal("nothing is sealed")
		}
		writeCheckpoints(t, l, each)
		l.Steps.ended(share, emitter.Aborted)
		if l.tail.look(t.Context()); l.Failure() != nil || l.Steps.Doubt() {
			t.Fatal(l.Failure())
		}
		if want := int64(wire.ClaimRecords + i*each); i > 0 && last != want {
			t.Errorf("look %d ends with a fetch from %d, want %d", i, last, want)
		}
	}
	if at := l.Steps.tail.next - owed; at != wire.ClaimRecords+4*each {
		t.Errorf("known up to %d", at)
	}
}

// An idle partition also notices that another group has claimed it.
func TestIdlePartitionNoticesAClaim(t *testing.T) {
	l, _ := online(t)
	writeCheckpoints(t, l, 1)
	l.Steps.own(Claimed{Behind: 1})
	later := func() {
		l.Steps.tail.at = time.Now().Add(-2 * tailEvery)
		l.tail.peek(t.Context())
	}
	if later(); l.Steps.tail.doubt != nil {
		t.Fatal("in doubt of nothing")
	}
	for range wire.ClaimRecords {
		cl := wire.Claim{Step: "s", Group: "other"}
		r := &kgo.Record{Topic: l.o.Topics.Changelog.Name, Key: wire.ClaimKey(), Value: cl.AppendTo(nil)}
		must(t, l.o.Client.ProduceSync(t.Context(), r).FirstErr())
	}
	if l.tail.peek(t.Context()); l.Steps.tail.doubt != nil {
		t.Error("looked again at once")
	}
	if later(); l.Steps.tail.doubt == nil {
		t.Fatal("the claim was not noticed")
	}
	l.tail.look(t.Context())
	var fatal *Fatal
	if !errors.As(l.Failure(), &fatal) || !strings.Contains(fatal.Error(), "--accept-group") {
		t.Errorf("ends with %v", l.Failure())
	}
}

// An idle partition also notices that its changelog has lost its end, and is acquired again. Otherwise it would answer
// questions by steps that are gone, until its next one.
func TestIdlePartitionNoticesThatItsChangelogWasCut(t *testing.T) {
	l, _ := online(t)
	l.Steps.own(Claimed{Behind: 5}) // and the log is empty
	l.Steps.tail.at = time.Now().Add(-2 * tailEvery)
	if l.tail.peek(t.Context()); l.Steps.tail.doubt == nil {
		t.Fatal("the cut was not noticed")
	}
	l.tail.look(t.Context())
	err := l.Failure()
	var fatal *Fatal
	if err == nil || errors.As(err, &fatal) {
		t.Errorf("ends with %v, want an error that is mended by another acquisition", err)
	}
	t.Log(err)
}

// A step that begins and ends while the leader's answer is on its way is no sign that the log was cut.
func TestAStepDuringAPeekIsNoCut(t *testing.T) {
	l, c := online(t)
	writeCheckpoints(t, l, 10)
	s := l.Steps
	s.own(Claimed{Behind: 10, Leader: 1})
	s.tail.at = time.Now().Add(-2 * tailEvery)
	asked := 0
	c.ControlKey(int16(kmsg.ListOffsets), func(r kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		if asked++; asked != 3 { // Bounds asks for the high watermark last
			return nil, nil, false
		}
		if err := s.check(stepAt(10, 11), 1); err != nil {
			t.Error(err)
		}
		return endsAt(r, 10), nil, true // as of before the step
	})
	if l.tail.peek(t.Context()); s.Doubt() {
		t.Errorf("in doubt: %+v", s.tail)
	}
}

// A former leader that has not heard of its successor says that the log is shorter than it is. For some seconds no
// broker believes it.
func TestAFormerLeaderIsNotBelieved(t *testing.T) {
	l, c := online(t)
	writeCheckpoints(t, l, 10)
	l.Steps.own(Claimed{Behind: 10, Leader: 1})
	l.Steps.tail.at = time.Now().Add(-2 * tailEvery)
	var heard atomic.Bool
	c.ControlKey(int16(kmsg.ListOffsets), func(r kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		return endsAt(r, 5), nil, !heard.Load()
	})
	c.ControlKey(int16(kmsg.Fetch), func(r kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		req := r.(*kmsg.FetchRequest)
		resp := req.ResponseKind().(*kmsg.FetchResponse)
		topic, p := kmsg.NewFetchResponseTopic(), kmsg.NewFetchResponseTopicPartition()
		topic.Topic, topic.TopicID = req.Topics[0].Topic, req.Topics[0].TopicID
		p.ErrorCode, p.HighWatermark = kerr.OffsetOutOfRange.Code, 5
		topic.Partitions = append(topic.Partitions, p)
		resp.Topics = append(resp.Topics, topic)
		return resp, nil, !heard.Load()
	})
	if l.tail.peek(t.Context()); !l.Steps.Doubt() {
		t.Fatal("no doubt")
	}
	time.AfterFunc(300*time.Millisecond, func() { heard.Store(true) })
	l.tail.look(t.Context())
	if err := l.Failure(); err != nil {
		t.Errorf("a partition whose log is whole ends with %v", err)
	}
}

// stepAt is a step whose records were acknowledged at offsets.
func stepAt(offsets ...int64) (rs []*kgo.Record) {
	for _, o := range offsets {
		rs = append(rs, &kgo.Record{Offset: o})
	}
	return rs
}

// write writes a record to the changelog.
func write(t *testing.T, l *Life, key, value []byte) {
	t.Helper()
	r := &kgo.Record{Topic: l.o.Topics.Changelog.Name, Key: key, Value: value}
	must(t, l.o.Client.ProduceSync(t.Context(), r).FirstErr())
}

// writeCheckpoints writes records to the changelog.
func writeCheckpoints(t *testing.T, l *Life, n int) {
	t.Helper()
	for range n {
		write(t, l, wire.CheckpointKey(), nil)
	}
}

// endsAt is the answer to a question for an offset: that of the log's start, or the one given.
func endsAt(r kmsg.Request, offset int64) kmsg.Response {
	req := r.(*kmsg.ListOffsetsRequest)
	resp := req.ResponseKind().(*kmsg.ListOffsetsResponse)
	topic, p := kmsg.NewListOffsetsResponseTopic(), kmsg.NewListOffsetsResponseTopicPartition()
	topic.Topic, p.Offset = req.Topics[0].Topic, offset
	if req.Topics[0].Partitions[0].Timestamp == -2 {
		p.Offset = 0
	}
	topic.Partitions = append(topic.Partitions, p)
	resp.Topics = append(resp.Topics, topic)
	return resp
}

// A step that was given up while a replica was dying left records in the leader's log, which are not shown to readers.
// The doubt stays until they are shown; otherwise the next step would be at an unexpected offset. A successor without
// those records ends the doubt too.
func TestTheTailEndsAtTheLeadersLogEnd(t *testing.T) {
	for name, shown := range map[string]bool{"the others have it": true, "the next leader does not": false} {
		t.Run(name, func(t *testing.T) {
			l, c := online(t)
			var lacking atomic.Int64
			var asked atomic.Int32
			writeCheckpoints(t, l, 1)
			lacking.Store(4)
			c.ControlKey(int16(kmsg.ListOffsets), func(r kmsg.Request) (kmsg.Response, error, bool) {
				c.KeepControl()
				req := r.(*kmsg.ListOffsetsRequest)
				if req.ReplicaID >= -1 {
					return nil, nil, false
				}
				asked.Add(1)
				return endsAt(r, lacking.Load()), nil, true
			})
			var looks sync.WaitGroup
			l.tail.aside = func(f func()) { looks.Go(f) }
			l.Steps.own(Claimed{Behind: 1})
			l.Steps.tail.distrust(errEnd)
			l.tail.look(t.Context())
			await.Until(t, 10*time.Second, "somebody asks where the leader writes next",
				func() bool { return asked.Load() >= 5 })
			l.Steps.mu.Lock()
			if l.Steps.tail.doubt == nil {
				t.Error("no doubt of records that nobody is shown")
			}
			l.Steps.mu.Unlock()
			want := int64(1)
			if shown {
				want = 4
				writeCheckpoints(t, l, 3)
			} else {
				lacking.Store(1)
			}
			looks.Wait()
			if at := l.Steps.tail.next - owed; l.Steps.tail.doubt != nil || at != want || l.Failure() != nil {
				t.Errorf("doubt %v, nothing strange below %d, %v; want none below %d", l.Steps.tail.doubt, at,
					l.failure, want)
			}
		})
	}
}

// A doubt that lasts is shown.
func TestDoubtIsShown(t *testing.T) {
	l := offline(&leader{})
	l.SetState(Live)
	l.Steps.tail.distrust(errEnd)
	if s := l.Status(); s.State != Live {
		t.Errorf("%s at once", s.State)
	}
	l.Steps.tail.at = time.Now().Add(-2 * doubtShown)
	if s := l.Status(); s.State != Stalled || !strings.Contains(s.Reason, "claimed") {
		t.Errorf("%s: %s", s.State, s.Reason)
	}
}

// A stalled partition says since when it is stalled, and each stall anew, although its status is not asked for in
// between.
func TestAStallHasItsBeginning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &leader{}
		l := offline(b)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			l.Run(ctx, func(ctx context.Context) error {
				l.SetState(Live)
				<-ctx.Done()
				return ctx.Err()
			})
		}()
		for _, by := range []int32{0, -1, 0, -1} {
			began := time.Now()
			b.led(t, &l.o, by)
			time.Sleep(time.Minute)
			s := l.Status()
			if stalled := s.State == Stalled; stalled != (by < 0) || stalled && s.Since.Sub(began) > 2*stallLook {
				t.Errorf("leader %d: %s since %v, want since %v", by, s.State, s.Since, began)
			}
		}
		cancel()
		<-done
	})
}

// While the changelog's leader is unreachable its tail is not looked at: a successor shows less than there is. Only a
// leader ends that.
func TestTheTailIsNotReadWhileTheLeaderIsAway(t *testing.T) {
	b := &leader{}
	l := offline(b)
	looks := 0
	l.tail.aside = func(func()) { looks++ }
	l.SetState(Live)
	l.Steps.tail.distrust(errEnd)
	l.Steps.tail.at = time.Now().Add(-2 * doubtShown)
	b.led(t, &l.o, -1)
	l.tail.look(t.Context())
	if s := l.Status(); looks > 0 || s.State != Stalled || !strings.Contains(s.Reason, "no leader") {
		t.Errorf("without a leader: %d looks, %s: %s", looks, s.State, s.Reason)
	}
	b.led(t, &l.o, 0)
	l.tail.look(t.Context())
	if l.tail.look(t.Context()); looks != 1 || l.Steps.leaderless {
		t.Errorf("with a leader: %d looks, want 1; leaderless: %v", looks, l.Steps.leaderless)
	}
}

// A claim that takes over may stand behind records that another group has just written: they are folded before anything
// is decided. The very first claim may not: it brings the first checkpoint, which would lead back to before requests
// that others have settled.
func TestClaimAfterAnotherGroup(t *testing.T) {
	for _, x := range []struct {
		name          string
		accept, first bool
		at            int64
		want          error
	}{
		{"directly behind what was read", false, false, 5, nil},
		{"behind others", false, false, 7, errForeignRecords},
		{"behind others, taking over", true, false, 7, nil},
		{"the first, directly behind", true, true, 5, nil},
		{"the first, behind others", true, true, 7, errForeignRecords},
	} {
		t.Run(x.name, func(t *testing.T) {
			l := offline(&leader{})
			l.o.AcceptGroup = x.accept
			cl := &claim{o: &l.o, steps: l.Steps, recs: l.Records, first: x.first, end: 5}
			cl.seal("claim")
			for i, r := range cl.share.Records {
				r.Offset = x.at + int64(i)
			}
			if err := cl.check(0); !errors.Is(err, x.want) {
				t.Errorf("%v, want %v", err, x.want)
			}
		})
	}
}

// TestAGroupThatTakesOverAgain: its offset is from before the other group took over, and the claim does not repeat it.
// Otherwise Kafka's tools would show a lag until the next step.
func TestAGroupThatTakesOverAgain(t *testing.T) {
	for _, x := range []struct {
		name      string
		last      string // the group that wrote last
		committed int64
		step      string // the step that has committed it
		want      int64
	}{
		{"the same group", "ours", 5, "s/1", 5},
		{"the same group, without an offset", "ours", -1, "", 14},
		{"the same group, and an operator has set its offset", "ours", 0, "", 14},
		{"another group", "theirs", 5, "s/1", 14},
		{"another group, for the first time", "theirs", -1, "", 14},
	} {
		l := offline(&leader{})
		l.o.Group, l.o.AcceptGroup = "ours", true
		a := &acquirer{o: &l.o, log: l.Log}
		got, err := a.claimPosition(t.Context(), &wire.Checkpoint{Group: x.last, Position: 14}, x.committed,
			x.step, nil)
		if err != nil || got != x.want {
			t.Errorf("%s: the claim has position %d, %v; want %d", x.name, got, err, x.want)
		}
	}
}
