package partlog

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waterclock/waterclock/internal/kafkatest"
)

const (
	commit = kgo.TryCommit
	abort  = kgo.TryAbort
)

// TestPosition writes logs with tails that no poll shows.
func TestPosition(t *testing.T) {
	tests := []struct {
		name     string
		write    func(p *partition)
		from     int64
		want     []string
		position int64
	}{
		{name: "empty log", write: func(*partition) {}},
		{
			name:     "plain records",
			write:    func(p *partition) { p.write(p.cl, "0", "1", "2") },
			want:     []string{"0", "1", "2"},
			position: 3,
		},
		{
			name:     "from the middle",
			write:    func(p *partition) { p.write(p.cl, "0", "1", "2") },
			from:     2,
			want:     []string{"2"},
			position: 3,
		},
		{
			name:     "commit marker at the end",
			write:    func(p *partition) { p.begin("a", "0", "1").end(commit) },
			want:     []string{"0", "1"},
			position: 3,
		},
		{
			name: "aborted tail",
			write: func(p *partition) {
				p.write(p.cl, "0")
				p.begin("a", "x", "x", "x").end(abort)
			},
			want:     []string{"0"},
			position: 5,
		},
		{
			name: "from within an aborted transaction",
			write: func(p *partition) {
				p.begin("a", "x", "x", "x").end(abort)
				p.write(p.cl, "4")
			},
			from:     2,
			want:     []string{"4"},
			position: 5,
		},
		{
			name: "hanging transaction before an aborted record",
			write: func(p *partition) {
				p.write(p.cl, "0")
				p.begin("hangs", "y")
				p.begin("a", "x").end(abort)
			},
			want:     []string{"0"},
			position: 1,
		},
		{
			name: "aborted, with its marker behind a hanging transaction",
			write: func(p *partition) {
				p.write(p.cl, "0")
				a := p.begin("a", "x", "x")
				p.begin("hangs", "y")
				a.end(abort)
			},
			want:     []string{"0"},
			position: 3,
		},
		{
			name: "committed, with its marker behind a hanging transaction",
			write: func(p *partition) {
				a := p.begin("a", "0", "1")
				p.begin("hangs", "y")
				a.end(commit)
			},
			want:     []string{"0", "1"},
			position: 2,
		},
		{
			name: "one producer aborts, commits, aborts",
			write: func(p *partition) {
				a := p.begin("a", "x")
				a.end(abort)
				a.begin("2")
				a.end(commit)
				a.begin("x", "x")
				a.end(abort)
			},
			want:     []string{"2"},
			position: 7,
		},
	}
	kafkatest.OnBoth(t, func(t *testing.T, on *kafkatest.Setup) {
		for _, tt := range tests {
			t.Run(tt.name, func(t *testing.T) {
				in := *on
				in.T = t
				p := newPartition(&in, nil)
				tt.write(p)
				p.want(tt.from, tt.want, tt.position)
			})
		}
	})
}

// TestReaderGoesOnWhenAHangingTransactionEnds: the tail is an aborted record whose marker
// lies behind a hanging transaction; when that ends, the same Reader goes on.
func TestReaderGoesOnWhenAHangingTransactionEnds(t *testing.T) {
	kafkatest.OnBoth(t, func(t *testing.T, on *kafkatest.Setup) {
		p := newPartition(on, nil)
		p.write(p.cl, "0")
		hanging := p.begin("hangs", "1")
		p.begin("a", "x").end(abort)
		r := NewReader(p.cl, p.target, 0)
		if got, page := p.drain(r); len(got) != 1 || r.Position() != 1 || page.LastStable != 1 ||
			page.HighWatermark != 4 {
			t.Fatalf("read %q to %d, page %+v", got, r.Position(), page)
		}
		hanging.end(commit)
		if got, _ := p.drain(r); len(got) != 1 || got[0] != "1" || r.Position() != 5 {
			t.Fatalf("then read %q to %d, want [1] to 5", got, r.Position())
		}
	})
}

func TestBounds(t *testing.T) {
	kafkatest.OnBoth(t, func(t *testing.T, on *kafkatest.Setup) {
		p := newPartition(on, nil)
		p.write(p.cl, "0", "1", "2", "3")
		p.begin("hangs", "y")
		p.deleteBefore(2)
		start, stable, high, err := Bounds(p.Ctx, p.cl, Log{Topic: p.target.Topic})
		if err != nil || start != 2 || stable != 4 || high != 5 {
			t.Fatalf("got %d, %d, %d, %v; want 2, 4, 5", start, stable, high, err)
		}
		for _, e := range []Epoch{0, EpochOf(0)} {
			if got, err := SpanOf(p.Ctx, p.cl, Log{Topic: p.target.Topic}, e); err != nil || got != (Span{2, 5, 5}) {
				t.Errorf("epoch %d: %+v, %v", e, got, err)
			}
		}
		if got, err := SpanOf(p.Ctx, p.cl, Log{Topic: p.target.Topic}, EpochOf(7)); err != nil ||
			got != (Span{2, 5, -1}) {
			t.Errorf("an epoch that is to come: %+v, %v", got, err)
		}
	})
}

func (p *partition) deleteBefore(offset int64) {
	p.T.Helper()
	req := deleteRecords(p.target, offset)
	resp, err := req.RequestWith(p.Ctx, p.cl)
	must(p.T, err)
	must(p.T, kerr.ErrorForCode(resp.Topics[0].Partitions[0].ErrorCode))
}

func TestOutOfRange(t *testing.T) {
	kafkatest.OnBoth(t, func(t *testing.T, on *kafkatest.Setup) {
		p := newPartition(on, nil)
		p.write(p.cl, "0", "1", "2", "3")
		p.deleteBefore(2)
		for _, from := range []int64{1, 5} {
			r := NewReader(p.cl, p.target, from)
			if more, err := r.More(p.Ctx); err != nil || !more {
				t.Errorf("from %d: more %v, %v: Next has something to say", from, more, err)
			}
			_, err := r.Next(p.Ctx, 0)
			var e *OutOfRangeError
			if !errors.As(err, &e) || !errors.Is(err, ErrOutOfRange) {
				t.Fatalf("from %d: %v", from, err)
			}
			if want := (OutOfRangeError{Log: p.target, Position: from, LogStart: 2, End: 4}); *e != want {
				t.Errorf("from %d: got %+v, want %+v", from, *e, want)
			}
			if r.Position() != from {
				t.Errorf("from %d: the position moved to %d", from, r.Position())
			}
		}
	})
}

func TestTopicGone(t *testing.T) {
	kafkatest.OnBoth(t, func(t *testing.T, on *kafkatest.Setup) {
		p := newPartition(on, nil)
		p.write(p.cl, "0")
		old := NewReader(p.cl, p.target, 0)
		old.SetGoneAfter(300 * time.Millisecond)
		p.drain(old)

		kafkatest.DeleteTopics(t, p.Adm, p.target.Topic) // which waits until the broker has heard of it
		_, err := old.Next(p.Ctx, 0)
		if !errors.Is(err, ErrTopicGone) || !errors.Is(err, kerr.UnknownTopicOrPartition) &&
			!errors.Is(err, kerr.UnknownTopicID) {
			t.Fatalf("deleted: %v", err)
		}

		before := p.target.ID
		p.create(nil)
		p.write(p.client(), "new", "new")
		_, err = old.Next(p.Ctx, 0)
		if !errors.Is(err, ErrTopicGone) ||
			!strings.Contains(err.Error(), fmt.Sprintf("ID %x now, not %x", p.target.ID, before)) {
			t.Fatalf("made again: %v", err)
		}
		p.want(0, []string{"new", "new"}, 2)
	})
}

func TestZeroIDIsTakenFromTheName(t *testing.T) {
	p := newPartition(kafkatest.OnFake(t, 1), nil)
	p.write(p.cl, "0")
	r := NewReader(p.cl, Log{Topic: p.target.Topic}, 0)
	if got, _ := p.drain(r); len(got) != 1 || r.Log() != p.target {
		t.Fatalf("read %q of %+v, want one of %+v", got, r.Log(), p.target)
	}
}

func TestNextWaitsForData(t *testing.T) {
	kafkatest.OnBoth(t, func(t *testing.T, on *kafkatest.Setup) {
		p := newPartition(on, nil)
		p.write(p.cl, "0")
		r := NewReader(p.client(), p.target, 1)
		const wait = 100 * time.Millisecond
		start := time.Now()
		page, err := r.Next(p.Ctx, wait)
		if err != nil || len(page.Records) != 0 || time.Since(start) < wait {
			t.Fatalf("got %d records, %v after %v", len(page.Records), err, time.Since(start))
		}
		got := make(chan Page, 1)
		go func() {
			page, _ := r.Next(p.Ctx, time.Minute)
			got <- page
		}()
		p.write(p.cl, "1")
		if page := <-got; len(page.Records) != 1 || r.Position() != 2 {
			t.Fatalf("got %+v at %d", page, r.Position())
		}
	})
}

func TestNextEndsWithItsContext(t *testing.T) {
	p := newPartition(kafkatest.OnFake(t, 1), nil)
	r := NewReader(p.cl, p.target, 0)
	ctx, cancel := context.WithTimeout(p.Ctx, 50*time.Millisecond)
	defer cancel()
	if _, err := r.Next(ctx, time.Minute); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
}

func TestNextAfterTheClientIsClosed(t *testing.T) {
	p := newPartition(kafkatest.OnFake(t, 1), nil)
	r := NewReader(p.cl, p.target, 0)
	p.cl.Close()
	if _, err := r.Next(p.Ctx, 0); !errors.Is(err, kgo.ErrClientClosed) {
		t.Fatal(err)
	}
}

func deleteRecords(t Log, before int64) *kmsg.DeleteRecordsRequest {
	req := kmsg.NewPtrDeleteRecordsRequest()
	rt := kmsg.NewDeleteRecordsRequestTopic()
	rt.Topic = t.Topic
	rp := kmsg.NewDeleteRecordsRequestTopicPartition()
	rp.Partition = t.Partition
	rp.Offset = before
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	return req
}
