package history

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"strconv"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"pgregory.net/rapid"

	"github.com/waterclock/waterclock"
)

const due = int64(1_700_000_000_000)

func payload(b []byte, n int) []byte { return fmt.Appendf(b, "payload of %d", n) }

// emission is what a correct service writes for an occurrence of timer n.
func emission(n, occurrence int, due int64) Received {
	id := []byte("p-" + strconv.Itoa(n))
	return Received{At: time.UnixMilli(due), Record: &kgo.Record{
		Key: id, Value: payload(nil, n), Timestamp: time.UnixMilli(due), Headers: []kgo.RecordHeader{
			{Key: waterclock.HeaderID, Value: id}, {Key: waterclock.HeaderDue, Value: strconv.AppendInt(nil, due, 10)},
			{Key: waterclock.HeaderOccurrence, Value: strconv.AppendInt(nil, int64(occurrence), 10)}}}}
}

func TestBookOfOneTimer(t *testing.T) {
	for _, c := range []struct {
		name string
		do   func(b *Book, r Received)
		want Counts
	}{
		{"exact", func(b *Book, r Received) { b.Receive(r) }, Counts{Received: 1}},
		{"lost", func(*Book, Received) {}, Counts{Lost: 1}},
		{"duplicated", func(b *Book, r Received) { b.Receive(r); b.Receive(r) }, Counts{Received: 1, Duplicated: 1}},
		{"early by its timestamp", func(b *Book, r Received) {
			r.Timestamp = r.Timestamp.Add(-time.Millisecond)
			b.Receive(r)
		}, Counts{Received: 1, Early: 1}},
		{"early by receipt", func(b *Book, r Received) {
			r.At = r.At.Add(-time.Millisecond)
			b.Receive(r)
		}, Counts{Received: 1, Early: 1}},
		{"another value", func(b *Book, r Received) { r.Value[3]++; b.Receive(r) }, Counts{Received: 1, Altered: 1}},
		{"another key", func(b *Book, r Received) { r.Key = []byte("x"); b.Receive(r) },
			Counts{Received: 1, Altered: 1}},
		{"another due time", func(b *Book, r Received) { r.Headers[1].Value = []byte("17"); b.Receive(r) },
			Counts{Received: 1, Altered: 1}},
		{"no due time", func(b *Book, r Received) { r.Headers[1].Value = nil; b.Receive(r) },
			Counts{Received: 1, Altered: 1}},
		{"a timer that nobody scheduled", func(b *Book, r Received) { b.Receive(r); b.Receive(emission(1, 1, due)) },
			Counts{Received: 1, Altered: 1}},
		{"somebody else's", func(b *Book, r Received) {
			b.Receive(r)
			if b.Receive(Received{Record: &kgo.Record{Key: []byte("other")}}) {
				t.Error("the book has taken what is not its own")
			}
		}, Counts{Received: 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := NewBook(Timers{Prefix: "p-", Value: payload}, 1)
			b.Schedule(due)
			c.do(b, emission(0, 1, due))
			b.Close()
			c.want.Scheduled = 1
			got := b.Counts()
			if got != c.want {
				t.Errorf("%+v, want %+v", got, c.want)
			}
			if err := got.Err("phase"); errors.Is(err, ErrInexact) == (got.Wrong() == 0) {
				t.Errorf("%+v: %v", got, err)
			}
			select {
			case <-b.Full():
				if got.Received == 0 {
					t.Error("complete without the emission")
				}
			default:
				if got.Received == 1 {
					t.Error("not complete")
				}
			}
		})
	}
}

// A book without due times trusts the emissions' headers, and still finds early ones.
func TestBookOfAnyDue(t *testing.T) {
	b := NewBook(Timers{Prefix: "p-"}, 3)
	for range 3 {
		b.Schedule(AnyDue)
	}
	on, early := emission(0, 1, due), emission(1, 1, due+5)
	early.Timestamp = time.UnixMilli(due + 4)
	on.Value = bytes.Repeat(on.Value, 2)
	b.Receive(on)
	b.Receive(early)
	if got, want := b.Counts(), (Counts{Scheduled: 3, Received: 2, Lost: 1, Early: 1}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if again := b.Again().Counts(); again != (Counts{Scheduled: 3, Lost: 3}) {
		t.Errorf("%+v", again)
	}
}

// The book accepts an emission exactly if Check finds no violation: a change of any part of an emission leads to the
// same verdict, whether the book judges or Check judges the whole history.
func TestBookJudgesAsCheckDoes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := NewBook(Timers{Prefix: "p-", Value: payload}, 2)
		h := History{Scope: Scope{To: map[Log]int64{{}: math.MaxInt64}}}
		for n := range 2 {
			b.Schedule(due)
			id := fmt.Sprint("p-", n)
			h.Requests = append(h.Requests, Request{
				Record: Record{Place: Place{Offset: int64(n)}}, ID: id, Action: Schedules, Due: due,
				Emits: Payload{Key: id, Value: string(payload(nil, n))},
			})
		}
		for i := range rapid.IntRange(1, 3).Draw(t, "emissions") {
			n := rapid.IntRange(0, 2).Draw(t, "timer")
			r := emission(n, rapid.SampledFrom([]int{1, 1, 1, 2}).Draw(t, "occurrence"),
				due+rapid.SampledFrom([]int64{0, 0, 0, -1, 5}).Draw(t, "due"))
			r.Timestamp = time.UnixMilli(due + rapid.SampledFrom([]int64{0, 3, -1}).Draw(t, "written"))
			r.At = time.UnixMilli(due + rapid.SampledFrom([]int64{4, 5, -1}).Draw(t, "received"))
			if rapid.IntRange(0, 3).Draw(t, "altered") == 0 {
				r.Value = append(r.Value, 'x')
			}
			if !b.Receive(r) {
				t.Fatal("the book has not taken its own")
			}
			claimed, err := r.Due()
			if err != nil {
				t.Fatal(err)
			}
			occurrence, _ := strconv.ParseInt(r.Header(waterclock.HeaderOccurrence), 10, 64)
			h.Emissions = append(h.Emissions, Emission{
				Record: Record{Place: Place{Offset: int64(i)}, Timestamp: r.Timestamp.UnixMilli(), Seen: r.At},
				ID:     string(r.Key), Due: claimed, Occurrence: occurrence,
				Source: Place{Offset: int64(n)}, Event: fmt.Sprint(n),
				Carries: Payload{Key: string(r.Key), Value: string(r.Value)},
			})
			c := b.Counts()
			if wrong := c.Duplicated+c.Early+c.Altered > 0; wrong != (len(Check(h)) > 0) {
				t.Fatalf("the book counts %+v, and Check finds %q", c, Check(h))
			}
		}
	})
}
