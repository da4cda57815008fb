package api_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/waterclock/waterclock/intake"
	"github.com/waterclock/waterclock/internal/api"
	"github.com/waterclock/waterclock/internal/timer"
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

// pagesOf goes through at most most pages of a list, and returns the IDs under a field of the
// answers. Each page is bounded, and no ID comes twice.
func pagesOf(t *testing.T, in *instance, field, list string, most int) map[string]bool {
	t.Helper()
	seen, cursor := make(map[string]bool), ""
	for pages := 1; ; pages++ {
		got := in.Get(list+"&cursor="+cursor).Is(200, "")
		if len(got.Text) > maxText {
			t.Fatalf("a page of %d bytes", len(got.Text))
		}
		for _, one := range got.Body[field].([]any) {
			id := one.(map[string]any)["id"].(string)
			if seen[id] {
				t.Errorf("%s is there twice", id)
			}
			seen[id] = true
		}
		if cursor, _ = got.Body["cursor"].(string); cursor == "" {
			return seen
		}
		if pages > most {
			t.Fatal("the list does not end")
		}
	}
}

// A page is limited in bytes too. The rest comes on the next pages, once.
func TestPagesAreBounded(t *testing.T) {
	in := alone(t)
	const n = 60
	schedules(t, in, n, 60_000)
	for _, order := range []string{"due", "id"} {
		seen := pagesOf(t, in, "timers", allTimers+"?limit=1000&order="+order, n)
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

// largeLetters are dead letters with large headers on each partition. It implements api.Logs.
type largeLetters struct {
	emptyLogs
	each int64 // of a partition
}

func (l largeLetters) Bounds(context.Context, string) (map[int32][2]int64, error) {
	all := make(map[int32][2]int64)
	for p := range int32(partitions) {
		all[p] = [2]int64{0, l.each}
	}
	return all, nil
}

func (l largeLetters) Read(_ context.Context, _ string, spans map[int32][2]int64, fn func(*api.Record) error) error {
	for p, span := range spans {
		for o := span[0]; o < span[1]; o++ {
			err := fn(&api.Record{Partition: p, Offset: o, Time: time.UnixMilli(1_800_000_000_000 + o),
				Key: fmt.Appendf(nil, "%d/%d", p, o), Value: []byte(`{"n":1}`), Headers: []timer.Header{
					{Key: "h", Value: []byte(strings.Repeat("x", 30_000))},
					{Key: "waterclock-source", Value: fmt.Appendf(nil, "timers/%d/%d", p, o)},
				}})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// Pages of dead letters, and of a timer's events, are limited too.
func TestPagesOfLogsAreBounded(t *testing.T) {
	const each = 15
	in := reading(t, largeLetters{each: each})
	seen := pagesOf(t, in, "deadLetters", allLetters+"?limit=100", partitions*each)
	if len(seen) != partitions*each {
		t.Errorf("%d of %d dead letters", len(seen), partitions*each)
	}
}

// largeEvents are events of one timer, of 10,000 bytes each.
type largeEvents struct {
	emptyLogs
	n int64
}

func (l largeEvents) Bounds(context.Context, string) (map[int32][2]int64, error) {
	return map[int32][2]int64{intake.Murmur2Partition([]byte("a"), partitions): {0, l.n}}, nil
}

func (l largeEvents) Read(_ context.Context, _ string, spans map[int32][2]int64, fn func(*api.Record) error) error {
	for p, span := range spans {
		for o := span[0]; o < span[1]; o++ {
			text, _ := json.Marshal(map[string]any{"type": "fired", "n": o, "detail": strings.Repeat("x", 10_000)})
			if err := fn(&api.Record{Partition: p, Offset: o, Time: time.UnixMilli(1_800_000_000_000 + o),
				Key: []byte("a"), Value: text}); err != nil {
				return err
			}
		}
	}
	return nil
}

func TestPagesOfHistoryAreBounded(t *testing.T) {
	const n = 100
	in := reading(t, largeEvents{n: n})
	next, cursor := int64(n), ""
	for {
		got := in.Get(path("a")+"/events?limit=1000&cursor="+cursor).Is(200, "")
		if len(got.Text) > maxText {
			t.Fatalf("a page of %d bytes", len(got.Text))
		}
		for _, one := range got.Body["events"].([]any) {
			if next--; one.(map[string]any)["offset"] != float64(next) {
				t.Fatalf("offset %v, want %d", one.(map[string]any)["offset"], next)
			}
		}
		if cursor, _ = got.Body["cursor"].(string); cursor == "" {
			break
		}
	}
	if next != 0 {
		t.Errorf("%d events are on no page", next)
	}
}
