package rig

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/audit/history"
	"github.com/waterclock/waterclock/internal/audit/observe"
	"github.com/waterclock/waterclock/internal/kafkatest"
)

// saidAtMost is how many violations of one check are reported.
const saidAtMost = 10

// Violations fails the test for each violation.
func Violations(t testing.TB, wrong []history.Violation) {
	t.Helper()
	for i, v := range wrong {
		if i == saidAtMost {
			kafkatest.Inexact(t, "%d violations", len(wrong))
			return
		}
		kafkatest.Inexact(t, "%s", v)
	}
}

// Emissions checks that the emissions a read_committed consumer received are neither early nor duplicate. It returns
// them by timer ID, in order of receipt.
func Emissions(t testing.TB, received []history.Received) map[string][]history.Received {
	t.Helper()
	byID, wrong := judged(received)
	Violations(t, wrong)
	return byID
}

// Once is Emissions for timers that fire once each.
func Once(t testing.TB, received []history.Received) map[string][]history.Received {
	t.Helper()
	byID, wrong := judged(received)
	Violations(t, append(wrong, repeated(byID, wrong)...))
	return byID
}

// Exactly is Once for exactly n timers.
func Exactly(t testing.TB, received []history.Received, n int) map[string][]history.Received {
	t.Helper()
	byID := Once(t, received)
	if len(byID) != n || len(received) != n {
		kafkatest.Inexact(t, "%d emissions of %d timers, want %d", len(received), len(byID), n)
	}
	return byID
}

// ExactlyIDs is Once for timers with known IDs.
func ExactlyIDs(t testing.TB, received []history.Received, ids []string) {
	t.Helper()
	Violations(t, unlike(Once(t, received), ids))
}

// judged returns emissions by timer ID, in order of receipt, and the violations that show without knowing the requests.
func judged(received []history.Received) (byID map[string][]history.Received, wrong []history.Violation) {
	byID = make(map[string][]history.Received)
	var h history.History
	for _, r := range received {
		e, err := observe.Emission(r.Record, r.At)
		if err != nil || e.Event == "" {
			wrong = append(wrong, violation("altered", "", "the emission on %s lacks headers: %v", place(r), r.Headers))
			continue
		}
		byID[e.ID] = append(byID[e.ID], r)
		h.Emissions = append(h.Emissions, e)
	}
	for _, v := range history.Check(h) {
		for _, r := range byID[v.ID] {
			v.Text += "; " + place(r)
		}
		wrong = append(wrong, v)
	}
	return byID, wrong
}

// repeated finds IDs that came more than once, unless that is already reported.
func repeated(byID map[string][]history.Received, wrong []history.Violation) (more []history.Violation) {
	for id, rs := range byID {
		known := slices.ContainsFunc(wrong,
			func(v history.Violation) bool { return v.ID == id && v.Rule == "duplicate" })
		if len(rs) > 1 && !known {
			more = append(more, violation("duplicate", id, "%s was emitted %d times", id, len(rs)))
		}
	}
	return more
}

// unlike compares emissions with the IDs that must have come.
func unlike(byID map[string][]history.Received, want []string) (wrong []history.Violation) {
	wanted := make(map[string]bool, len(want))
	for _, id := range want {
		wanted[id] = true
		if len(byID[id]) == 0 {
			wrong = append(wrong, violation("loss", id, "%s was not emitted", id))
		}
	}
	for id := range byID {
		if !wanted[id] {
			wrong = append(wrong, violation("altered", id, "%s was emitted and must not be", id))
		}
	}
	return wrong
}

func violation(rule, id, format string, args ...any) history.Violation {
	return history.Violation{Rule: rule, ID: id, Text: fmt.Sprintf(format, args...)}
}

// place describes where and when a record was written and received.
func place(r history.Received) string {
	return fmt.Sprintf("%s/%d at %d, producer %d epoch %d, leader epoch %d, written %s, received %s",
		r.Topic, r.Partition, r.Offset, r.ProducerID, r.ProducerEpoch, r.LeaderEpoch,
		r.Timestamp.Format(time.StampMilli), r.At.Format(time.StampMilli))
}

// Count reads the topics from their starts until the test ends, as a read_committed consumer does. It counts
// emissions in a book instead of keeping them, for millions of timers. Their IDs are the numbers below n.
func Count(t testing.TB, c *kafkatest.Cluster, n int, topics ...string) *history.Book {
	t.Helper()
	book := history.NewBook(history.Timers{}, n)
	for range n {
		book.Schedule(history.AnyDue)
	}
	Receive(t, c, book, topics...)
	return book
}

// Receive counts the emissions on the topics until the test ends, as Count does, in a book of the caller's.
func Receive(t testing.TB, c *kafkatest.Cluster, book *history.Book, topics ...string) {
	t.Helper()
	cl := c.Client(t, kgo.ConsumeTopics(topics...), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	kafkatest.Poll(t, cl, func(fetches kgo.Fetches, at time.Time) {
		fetches.EachRecord(func(r *kgo.Record) { book.Receive(history.Received{Record: r, At: at}) })
	})
}

// Fired checks that n timers of a book have fired, each once, and that nothing else came.
func Fired(t testing.TB, book *history.Book, n int) {
	t.Helper()
	c := book.Counts()
	if c.Lost -= c.Scheduled - n; c.Received != n || c.Wrong() > 0 {
		kafkatest.Inexact(t, "of %d timers: %+v", n, c)
	}
}

// FiredBelow returns how many timers of a book with numbers below n have fired.
func FiredBelow(book *history.Book, n int) int {
	for _, missing := range book.Missing() {
		if missing < n {
			n--
		}
	}
	return n
}
