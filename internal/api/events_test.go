package api_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/waterclock/waterclock/internal/api"
)

// boundLogs have ends, and yield two records of the first partition of a stream. The second one
// belongs to "a" and follows a marker. It implements api.Logs.
type boundLogs struct {
	emptyLogs
	bounds map[int32][2]int64
}

func (b *boundLogs) Bounds(context.Context, string) (map[int32][2]int64, error) {
	if b.bounds == nil {
		return nil, errors.New("the broker is away")
	}
	return b.bounds, nil
}

func (b *boundLogs) Follow(_ context.Context, topic string, at api.Position, fn func(*api.Record) error) error {
	if err := fn(nil); err != nil {
		return err
	}
	from := at.Next[0]
	for i, id := range []string{"other", "a"} {
		r := &api.Record{Partition: at.First, Offset: from + int64(2*i), Key: []byte(id),
			Value: []byte(`{"type":"fired"}`)}
		at.Passed(r.Partition, r.Offset)
		if err := fn(r); err != nil {
			return err
		}
	}
	return fmt.Errorf("%s is gone", topic)
}

// A stream continues where its caller stopped, or says that it cannot do so without a gap. It
// never begins elsewhere.
func TestStreamContinuesAtItsPosition(t *testing.T) {
	const stream = "/v1/topics/timers/events"
	p := place(t, "timers", "a", partitions).Partition
	l := &boundLogs{bounds: make(map[int32][2]int64)}
	var ends, begins []string
	for i := range int32(partitions) {
		l.bounds[i] = [2]int64{9 + int64(i), 200_010 + int64(i)}
		begins, ends = append(begins, fmt.Sprint(10+i)), append(ends, fmt.Sprint(200_010+i))
	}
	in := reading(t, l)
	all := "0:" + strings.Join(ends, ".")
	for _, c := range []struct {
		name, query, last string
		want              string // where it begins
		status            int
		reason, detail    string
	}{
		{"from now on", "", "", all, 200, "", ""},
		{"a timer from now on", "?id=a", "", fmt.Sprintf("%d:%d", p, 200_010+p), 200, "", ""},
		{"a position", "?position=" + all, "", all, 200, "", ""},
		{"of one timer", fmt.Sprintf("?id=a&position=%d:100000", p), "", fmt.Sprintf("%d:100000", p), 200, "", ""},
		{"of all, for one timer", "?id=a&position=" + all, "", fmt.Sprintf("%d:%d", p, 200_010+p), 200, "", ""},
		{"the last ID", "?id=a", fmt.Sprintf("%d:100001", p), fmt.Sprintf("%d:100001", p), 200, "", ""},
		{"the last ID counts before the position", fmt.Sprintf("?id=a&position=%d:100000", p),
			fmt.Sprintf("%d:100001", p), fmt.Sprintf("%d:100001", p), 200, "", ""},
		{"as far back as there is", fmt.Sprintf("?id=a&position=%d:%d", p, 10+p), "", fmt.Sprintf("%d:%d", p, 10+p),
			200, "", ""},
		{"one further back than is told", fmt.Sprintf("?id=a&position=%d:%d", p, 9+p), "", "", 410, "events-gone",
			"200001 offsets back"},
		{"before the beginning", fmt.Sprintf("?id=a&position=%d:%d", p, 8+p), "", "", 410, "events-gone", "retention"},
		{"behind the end", "?id=a", fmt.Sprintf("%d:%d", p, 200_011+p), "", 410, "events-gone", "recreated"},
		{"of another partition", "?id=a", fmt.Sprintf("%d:7", p+1), "", 410, "events-gone", "retention"},
		{"too far back together", "?position=0:" + strings.Join(begins, "."), "", "", 410, "events-gone",
			"200000 back at most"},
		{"no position", "?position=0/7", "", "", 400, "bad-request", "not one of a stream"},
		{"no last ID", "", "yesterday", "", 400, "bad-request", "not one of a stream"},
	} {
		a := in.Get(stream+c.query, "Last-Event-ID", c.last)
		if c.status != 200 {
			if a.Is(c.status, c.reason); !strings.Contains(a.Text, c.detail) {
				t.Errorf("%s: %s", c.name, a.Text)
			}
			continue
		}
		if a.Status != 200 || !strings.HasPrefix(a.Text, "id: "+c.want+"\n\n") {
			t.Errorf("%s: %d %.200s, want %s", c.name, a.Status, a.Text, c.want)
		}
	}
	a := in.Get(stream+"?id=a", "Last-Event-ID", fmt.Sprintf("%d:100", p))
	if want := fmt.Sprintf("id: %d:100\n\nid: %d:103\nevent: event\ndata: {\"id\":\"a\",\"type\":\"fired\"}\n\n", p,
		p); a.Text != want {
		t.Errorf("it tells %q, want %q", a.Text, want)
	}

	l.bounds = nil
	for range 40 { // more than there are places: a refused call takes none
		in.Get(stream).Is(503, "kafka-unreachable")
	}
}
