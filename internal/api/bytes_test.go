package api_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/waterclock/waterclock/internal/kafkatest/runs"
)

// maxText is the maximum size of a page as JSON: 256 KiB of timers.
const maxText = 512 << 10

// schedules makes n timers with a header of the given size.
func schedules(t *testing.T, in *instance, n, bytes int) {
	t.Helper()
	for i := range n {
		in.put(fmt.Sprintf("big-%03d", i), "payload", "waterclock-pass", "h="+strings.Repeat("x", bytes)).Is(201, "")
	}
}

// pagesOf goes through a list, and returns the IDs under a field of the answers. Each page is bounded, and no ID comes
// twice.
func pagesOf(t *testing.T, in *instance, field, list string) map[string]bool {
	t.Helper()
	seen := make(map[string]bool)
	in.Pages(list, func(page answer) {
		if len(page.Text) > maxText {
			t.Errorf("a page of %d bytes", len(page.Text))
		}
		for _, one := range page.Items(field) {
			id := one["id"].(string)
			if seen[id] {
				t.Errorf("%s is there twice", id)
			}
			seen[id] = true
		}
	})
	return seen
}

// A page is limited in bytes too. The rest comes on the next pages, once.
func TestPagesAreBounded(t *testing.T) {
	runs.NotRaced(t)
	in := alone(t)
	const n = 60
	schedules(t, in, n, 60_000)
	for _, order := range []string{"due", "id"} {
		seen := pagesOf(t, in, "timers", allTimers+"?limit=1000&order="+order)
		if len(seen) != n {
			t.Errorf("by %s: %d of %d timers", order, len(seen), n)
		}
	}
	// The answer to a POST is limited too. Here its timers are those that are already pending.
	var again []string
	for i := range n {
		again = append(again,
			fmt.Sprintf(`{"id":"big-%03d","after":"1h","if":"absent","target":{"topic":"orders"}}`, i))
	}
	got := in.post(`{"timers":[`+strings.Join(again, ",")+`]}`).Is(200, "")
	if len(got.Text) > 4<<20 || strings.Contains(got.Text, "cGF5") || strings.Contains(got.Text, `"payload"`) {
		t.Errorf("an answer of %d bytes: %.300s", len(got.Text), got.Text)
	}
	if results := got.Body["results"].([]any); len(results) != n {
		t.Errorf("%d results", len(results))
	}
}

// Pages of dead letters, and of a timer's events, are limited too.
func TestPagesOfLogsAreBounded(t *testing.T) {
	const each = 15
	l := &fakeLogs{}
	for i := range partitions * each {
		l.letter("timers", int32(i%partitions), time.UnixMilli(int64(i)), fmt.Sprint(i), "bad-cron", "h",
			strings.Repeat("x", 30_000))
	}
	in := reading(t, l)
	seen := pagesOf(t, in, "deadLetters", allLetters+"?limit=100")
	if len(seen) != partitions*each {
		t.Errorf("%d of %d dead letters", len(seen), partitions*each)
	}
	const n = 100
	for i := range n {
		l.event(t, time.UnixMilli(int64(i)), "a", "fired", "orders", strings.Repeat("x", 10_000))
	}
	next := int64(2 * n) // each has a marker behind it
	in.Pages(path("a")+"/events?limit=1000", func(page answer) {
		if len(page.Text) > maxText {
			t.Errorf("a page of %d bytes", len(page.Text))
		}
		for _, one := range page.Items("events") {
			if next -= 2; one["offset"] != float64(next) {
				t.Fatalf("offset %v, want %d", one["offset"], next)
			}
		}
	})
	if next != 0 {
		t.Errorf("%d events are on no page", next/2)
	}
}
