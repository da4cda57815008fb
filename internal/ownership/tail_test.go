package ownership

import (
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"

	"github.com/waterclock/waterclock/internal/await"
	"github.com/waterclock/waterclock/internal/partlog"
	"github.com/waterclock/waterclock/internal/wire"
)

// sharedLog is a changelog partition to which an owner and a stranger write. Only offsets matter. The stranger's claim
// is ClaimRecords consecutive records.
type sharedLog struct {
	end     int64
	markers int   // ours, to be written
	claim   int64 // offset of the last record of the first claim, -1: none
}

func (l *sharedLog) write(n int) {
	l.end += int64(n)
}

// step writes n records of ours, in up to two parts, and calls between between them.
func (l *sharedLog) step(n, first int, between func()) (records []*kgo.Record) {
	for i := range n {
		if i == first {
			between()
		}
		records = append(records, &kgo.Record{Offset: l.end})
		l.write(1)
	}
	return records
}

// Steps, late markers, aborted records of strangers and a claim are interleaved in any order. No step passes whose last
// record stands behind a claim, and after a look an owner that was not overtaken goes on.
func TestNoStepPassesBehindAClaim(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		log := &sharedLog{claim: -1}
		var tl tail
		tl.known(0)
		marker := func() {
			if log.markers > 0 {
				log.markers--
				log.write(1)
			}
		}
		slow := rapid.IntRange(0, 20).Draw(t, "how slow markers are")
		stranger := func() {
			if rapid.IntRange(0, slow).Draw(t, "marker") == 0 {
				marker()
			}
			switch rapid.IntRange(0, 29).Draw(t, "between") {
			case 0:
				log.write(rapid.IntRange(1, wire.ClaimRecords-1).Draw(t, "strange")) // aborted attempts
			case 1:
				log.write(wire.ClaimRecords)
				if log.claim < 0 {
					log.claim = log.end - 1
				}
				log.write(rapid.IntRange(0, 1).Draw(t, "its marker"))
			}
		}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			stranger()
			n := rapid.IntRange(1, 4).Draw(t, "records")
			records := log.step(n, rapid.IntRange(0, n).Draw(t, "portion"), stranger)
			acked := rapid.IntRange(0, 9).Draw(t, "acknowledged") > 0
			if !acked {
				records[0].Offset = -1
			}
			err := tl.check(records)
			if err == nil && log.claim >= 0 && log.claim < log.end {
				t.Fatalf("a step at %d to %d passes behind a claim that ends at %d", records[0].Offset, log.end-1, log.claim)
			}
			log.markers++
			if err == nil {
				tl.passed(records)
				continue
			}
			if log.claim >= 0 {
				return // a look finds it
			}
			tl.known(log.end)
		}
	})
}

// Without other writers no look is needed, whenever markers come: steps do not wait for them.
func TestOwnStepsPass(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		log := &sharedLog{}
		var tl tail
		tl.known(0)
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
			if err := tl.check(records); err != nil {
				t.Fatal(err)
			}
			tl.passed(records)
			log.markers++
		}
	})
}

func TestTailRefuses(t *testing.T) {
	var steps Steps
	steps.known(10)
	at := func(offsets ...int64) (rs []*kgo.Record) {
		for _, o := range offsets {
			rs = append(rs, &kgo.Record{Offset: o})
		}
		return rs
	}
	for _, c := range []struct {
		name    string
		records []*kgo.Record
		want    error
	}{
		{"directly behind", at(10, 11), nil},
		{"behind all markers that may come", at(10+owed, 11+owed), nil},
		{"one of them between the records", at(9+owed, 11+owed), nil},
		{"something else before them", at(11+owed, 12+owed), errForeignRecords},
		{"something else between them", at(10+owed, 12+owed), errForeignRecords},
		{"one without an answer", at(10, -1), errUnacknowledged},
		{"far too low", at(1, 2), errForeignRecords},
	} {
		if err := steps.Fence(c.records); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
}

// An owner notices that its changelog has lost its end, even if that is only one step. So small a loss looks like
// missing markers, and a look at the end of the log finds no other writer. Otherwise the owner would go on with steps
// that no successor has.
func TestAnOwnerNoticesThatItsChangelogWasCut(t *testing.T) {
	at := func(offsets ...int64) (rs []*kgo.Record) {
		for _, o := range offsets {
			rs = append(rs, &kgo.Record{Offset: o})
		}
		return rs
	}
	for _, c := range []struct {
		name    string
		records []*kgo.Record
		cut     bool
	}{
		{"behind the last step, whose marker is missing", at(13, 14), false},
		{"behind the last step and its marker", at(14, 15), false},
		{"in place of the last step", at(11, 12), true},
		{"in place of half of it", at(12, 13), true},
		{"in place of the claim", at(9, 10), true},
	} {
		t.Run(c.name, func(t *testing.T) {
			l, _ := online(t)
			s := l.Steps
			s.own(10)
			if err := s.Fence(at(11, 12)); err != nil {
				t.Fatal(err)
			}
			s.follow(at(11, 12))
			s.known(12) // a look forgets nothing of that
			if err := s.Fence(c.records); errors.Is(err, errCut) != c.cut {
				t.Errorf("may be committed: %v", err)
			}
			s.follow(c.records)
			if err := l.Failure(); errors.Is(err, errCut) != c.cut {
				t.Errorf("the partition ends with %v", err)
			}
		})
	}
}

// An idle partition also notices that another group has claimed it.
func TestIdlePartitionNoticesAClaim(t *testing.T) {
	l, _ := online(t)
	l.Steps.tail.known(0)
	later := func() {
		l.Steps.tail.at = time.Now().Add(-2 * tailEvery)
		l.tail.peek(t.Context())
	}
	if later(); l.Steps.tail.doubt {
		t.Fatal("in doubt of nothing")
	}
	for range wire.ClaimRecords {
		cl := wire.Claim{Step: "s", Group: "other"}
		r := &kgo.Record{Topic: l.o.Topics.Changelog.Name, Key: wire.ClaimKey(), Value: cl.AppendTo(nil)}
		if err := l.o.Client.ProduceSync(t.Context(), r).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	if l.tail.peek(t.Context()); l.Steps.tail.doubt {
		t.Error("looked again at once")
	}
	if later(); !l.Steps.tail.doubt {
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
	l.Steps.own(5) // and the log is empty
	l.Steps.tail.at = time.Now().Add(-2 * tailEvery)
	if l.tail.peek(t.Context()); !l.Steps.tail.doubt {
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
	s.own(10)
	s.tail.at = time.Now().Add(-2 * tailEvery)
	asked := 0
	c.ControlKey(int16(kmsg.ListOffsets), func(r kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		if asked++; asked != 3 { // the high watermark is what Bounds asks for last
			return nil, nil, false
		}
		step := []*kgo.Record{{Offset: 10}, {Offset: 11}}
		if err := s.Fence(step); err != nil {
			t.Error(err)
		}
		s.mu.Lock()
		s.follow(step)
		s.mu.Unlock()
		return endsAt(r, 10), nil, true // as of before the step
	})
	if l.tail.peek(t.Context()); s.Doubt() {
		t.Errorf("in doubt: %+v", s.tail)
	}
}

// A former leader that has not heard of its successor says that the log is shorter than it is. For some seconds nobody
// believes it.
func TestAFormerLeaderIsNotBelieved(t *testing.T) {
	l, c := online(t)
	writeCheckpoints(t, l, 10)
	l.Steps.own(10)
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

// writeCheckpoints writes records to the changelog.
func writeCheckpoints(t *testing.T, l *Life, n int) {
	t.Helper()
	for range n {
		r := &kgo.Record{Topic: l.o.Topics.Changelog.Name, Key: wire.CheckpointKey()}
		if err := l.o.Client.ProduceSync(t.Context(), r).FirstErr(); err != nil {
			t.Fatal(err)
		}
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
			lacking.Store(3)
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
			l.Steps.tail.known(0)
			l.Steps.tail.distrust()
			l.tail.look(t.Context())
			await.Until(t, 10*time.Second, "somebody asks where the leader writes next", func() bool { return asked.Load() >= 5 })
			l.Steps.mu.Lock()
			if !l.Steps.tail.doubt {
				t.Error("no doubt of records that nobody is shown")
			}
			l.Steps.mu.Unlock()
			want := int64(0)
			if shown {
				want = 3
				for range want {
					r := &kgo.Record{Topic: l.o.Topics.Changelog.Name, Key: wire.CheckpointKey()}
					if err := l.o.Client.ProduceSync(t.Context(), r).FirstErr(); err != nil {
						t.Fatal(err)
					}
				}
			} else {
				lacking.Store(0)
			}
			looks.Wait()
			if l.Steps.tail.doubt || l.Steps.tail.seen != want || l.Failure() != nil {
				t.Errorf("doubt %v, nothing strange below %d, %v; want none below %d", l.Steps.tail.doubt, l.Steps.tail.seen, l.failure, want)
			}
		})
	}
}

// The log ends below what this owner has seen of it: it has lost committed records (an unclean election, a disk). A
// look says so, and does not go on as if they had never existed.
func TestALookNoticesThatTheLogHasLostItsEnd(t *testing.T) {
	l, _ := online(t)
	l.Steps.tail.known(100)
	l.Steps.tail.distrust()
	l.tail.look(t.Context())
	if !errors.Is(l.Failure(), partlog.ErrOutOfRange) {
		t.Errorf("%v, doubt %v, nothing strange below %d; want that the log does not get there", l.Failure(), l.Steps.tail.doubt, l.Steps.tail.seen)
	}
}

// A doubt that lasts is shown.
func TestDoubtIsShown(t *testing.T) {
	l := offline(&leader{})
	l.SetState(Live)
	l.Steps.tail.distrust()
	if s := l.Status(); s.State != Live {
		t.Errorf("%s at once", s.State)
	}
	l.Steps.tail.at = time.Now().Add(-2 * doubtShown)
	if s := l.Status(); s.State != Stalled || !strings.Contains(s.Reason, "claimed") {
		t.Errorf("%s: %s", s.State, s.Reason)
	}
}

// While the changelog's leader is away nobody looks at its tail: a successor shows less than there is. Only a leader
// ends that.
func TestTheTailIsNotReadWhileTheLeaderIsAway(t *testing.T) {
	b := &leader{}
	l := offline(b)
	looks := 0
	l.tail.aside = func(func()) { looks++ }
	l.SetState(Live)
	l.Steps.tail.distrust()
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
			if err := cl.fence(); !errors.Is(err, x.want) {
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
		got, err := a.claimPosition(t.Context(), &wire.Checkpoint{Group: x.last, Position: 14}, x.committed, x.step, nil)
		if err != nil || got != x.want {
			t.Errorf("%s: the claim has position %d, %v; want %d", x.name, got, err, x.want)
		}
	}
}
