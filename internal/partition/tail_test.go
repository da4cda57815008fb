package partition

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"pgregory.net/rapid"

	"github.com/waterclock/waterclock/delaytopics"
)

// sharedLog is a changelog partition that an owner and a stranger write to. Only
// offsets count. The stranger's claim is ClaimRecords records in a row.
type sharedLog struct {
	end     int64
	markers int   // ours, to be written
	claim   int64 // offset of the last record of the first claim, -1: none
}

func (l *sharedLog) write(n int) {
	l.end += int64(n)
}

// step writes n records of ours, in up to two portions, with between between
// them.
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

// However steps, markers that come late, strangers' aborted records and a claim
// are interleaved: no step passes whose last record stands behind a claim, and a
// look lets an owner go on to whom nothing has happened.
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
				log.write(rapid.IntRange(1, delaytopics.ClaimRecords-1).Draw(t, "strange")) // aborted tries
			case 1:
				log.write(delaytopics.ClaimRecords)
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

// Without anybody else there is nothing to be looked at, whenever markers come:
// steps do not wait for them.
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
	var tl tail
	tl.known(10)
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
		if err := tl.check(c.records); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
}

// A partition that does nothing notices all the same that another group has
// claimed it.
func TestIdlePartitionNoticesAClaim(t *testing.T) {
	g := newGround(t)
	c := newCore(t, g, 1, 1<<20, 1000)
	p := c.p
	c.set.Changelog.Name, c.set.Changelog.ID = targetTopic, [16]byte{} // a topic that is there
	p.aside = func(run func()) { run() }
	p.tail.known(0)
	later := func() {
		p.tail.at = time.Now().Add(-2 * tailEvery)
		p.peekAtTail(t.Context())
	}
	if later(); p.tail.doubt {
		t.Fatal("in doubt of nothing")
	}
	manual, err := kgo.NewClient(kgo.SeedBrokers(g.seeds...), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	defer manual.Close()
	for range delaytopics.ClaimRecords {
		cl := delaytopics.Claim{Step: "s", Group: "other"}
		r := &kgo.Record{Topic: targetTopic, Partition: 0, Key: delaytopics.ClaimKey(), Value: cl.AppendTo(nil)}
		if err := manual.ProduceSync(t.Context(), r).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	if p.peekAtTail(t.Context()); p.tail.doubt {
		t.Error("looked again at once")
	}
	if later(); !p.tail.doubt {
		t.Fatal("the claim was not noticed")
	}
	p.lookAtTail(t.Context())
	var fatal *Fatal
	if !errors.As(p.failure, &fatal) || !strings.Contains(fatal.Error(), "--accept-group") {
		t.Errorf("ends with %v", p.failure)
	}
}

// A doubt that lasts is shown.
func TestDoubtIsShown(t *testing.T) {
	c := newCore(t, newGround(t), 1, 1<<20, 1000)
	c.p.state.Store(int32(Live))
	c.p.tail.distrust()
	if s := c.p.Status(); s.State != Live {
		t.Errorf("%s at once", s.State)
	}
	c.p.tail.at = time.Now().Add(-2 * doubtShown)
	if s := c.p.Status(); s.State != Stalled || !strings.Contains(s.Reason, "claimed") {
		t.Errorf("%s: %s", s.State, s.Reason)
	}
}

// While the changelog's leader is away nobody looks at its tail: a successor shows less
// than there is. Nothing but a leader ends that.
func TestNobodyLooksAtTheTailOfALeaderThatIsAway(t *testing.T) {
	c := newCore(t, newGround(t), 1, 1<<20, 1000)
	c.set.Changelog.Name, c.set.Changelog.ID = targetTopic, [16]byte{}
	looks := 0
	c.p.aside = func(func()) { looks++ }
	led := func(by int32) {
		c.brokers.leaders[targetTopic][0] = by
		c.ok(c.o.Targets.Refresh(t.Context(), targetTopic))
		c.p.lookAtTail(t.Context())
	}
	c.p.state.Store(int32(Live))
	c.p.tail.distrust()
	c.p.tail.at = time.Now().Add(-2 * doubtShown)
	led(-1)
	if s := c.p.Status(); looks > 0 || s.State != Stalled || !strings.Contains(s.Reason, "no leader") {
		t.Errorf("without a leader: %d looks, %s: %s", looks, s.State, s.Reason)
	}
	led(0)
	if c.p.lookAtTail(t.Context()); looks != 1 || c.p.leaderless {
		t.Errorf("with a leader: %d looks, want 1; leaderless: %v", looks, c.p.leaderless)
	}
}

// A claim may stand behind what another group has just written, if it takes over:
// that is folded before anything is decided. Not so the first one of all: it brings
// the first checkpoint along, which would lead back before what others have settled.
func TestClaimBehindAnotherGroup(t *testing.T) {
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
			c := newCore(t, newGround(t), 1, 1<<20, 8)
			c.p.o.AcceptGroup = x.accept
			cl := &claim{p: c.p, first: x.first, end: 5}
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
