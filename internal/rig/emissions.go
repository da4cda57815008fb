package rig

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/history"
	"github.com/waterclock/waterclock/internal/kafkatest"
)

// saidAtMost is how many violations of one check are shown.
const saidAtMost = 10

// Violations fails the test for each of them.
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

// Emissions checks what a read_committed consumer received: nothing came early, and no
// event twice. It returns the emissions by timer ID, in order of receipt.
func Emissions(t testing.TB, received []history.Received) map[string][]history.Received {
	t.Helper()
	byID, wrong := history.Emissions(received)
	Violations(t, wrong)
	return byID
}

// Once is Emissions for timers that fire once each.
func Once(t testing.TB, received []history.Received) map[string][]history.Received {
	t.Helper()
	byID, wrong := history.Once(received)
	Violations(t, wrong)
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

// ExactlyIDs is Once for timers that are known by their IDs.
func ExactlyIDs(t testing.TB, received []history.Received, ids []string) {
	t.Helper()
	Violations(t, history.Exactly(Once(t, received), ids))
}

// Count reads the topics from their starts until the test ends, as a read_committed consumer does, and books
// emissions instead of keeping them, for timers by the million. Their IDs are the numbers below n.
func Count(t testing.TB, c *kafkatest.Cluster, n int, topics ...string) *history.Book {
	t.Helper()
	book := history.NewBook(history.Timers{}, n)
	for range n {
		book.Schedule(history.AnyDue)
	}
	cl := c.Client(t, kgo.ConsumeTopics(topics...), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		for ctx.Err() == nil {
			fetches, at := cl.PollFetches(ctx), time.Now()
			fetches.EachRecord(func(r *kgo.Record) { book.Receive(history.Received{Record: r, At: at}) })
		}
	})
	t.Cleanup(func() { // before the client's own
		cancel()
		wg.Wait()
	})
	return book
}

// Fired checks that n timers of a book have fired, each once, and that nothing else came.
func Fired(t testing.TB, book *history.Book, n int) {
	t.Helper()
	c := book.Counts()
	if c.Lost -= c.Scheduled - n; c.Received != n || c.Wrong() > 0 {
		kafkatest.Inexact(t, "of %d timers: %+v", n, c)
	}
}

// FiredBelow is how many timers of a book with numbers below n have fired.
func FiredBelow(book *history.Book, n int) int {
	for _, missing := range book.Missing() {
		if missing < n {
			n--
		}
	}
	return n
}
