package history

import (
	"strings"
	"testing"
)

// What must have become of timers follows from the log, and each thing that can be wrong shows.
func TestFold(t *testing.T) {
	const gone, soon, far = "gone-1", "soon-1", due + 1_000_000
	type pending = map[string]string
	for _, c := range []struct {
		name                    string
		log                     []Request
		fired                   map[string]int
		left                    pending
		want                    Counts
		cancelled, notCancelled int
	}{
		{"cancelled", []Request{{gone, "t/0/1", far, ""}, {gone, "t/0/2", 0, "t/0/1"}}, nil, nil, Counts{Cancelled: 1}, 1, 0},
		{"not cancelled", []Request{{gone, "t/0/1", far, ""}}, nil, pending{gone: "t/0/1"}, Counts{Uncancelled: 1}, 0, 0},
		{"cancelled, and there", []Request{{gone, "t/0/1", far, ""}, {gone, "t/0/2", 0, "t/0/1"}}, nil, pending{gone: "t/0/1"}, Counts{Cancelled: 1, Uncancelled: 1}, 1, 0},
		{"replaced before", []Request{{gone, "t/0/1", far, ""}, {gone, "t/0/2", far, ""}, {gone, "t/0/3", 0, "t/0/1"}}, nil, pending{gone: "t/0/2"}, Counts{}, 0, 1},
		{"replaced before, and cancelled all the same", []Request{{gone, "t/0/1", far, ""}, {gone, "t/0/2", far, ""}, {gone, "t/0/3", 0, "t/0/1"}}, nil, nil, Counts{Lost: 1}, 0, 1},
		{"replaced behind", []Request{{gone, "t/0/1", far, ""}, {gone, "t/0/2", 0, "t/0/1"}, {gone, "t/0/3", far, ""}}, nil, pending{gone: "t/0/3"}, Counts{}, 1, 0},
		{"another version is there", []Request{{gone, "t/0/1", far, ""}, {gone, "t/0/2", far, ""}}, nil, pending{gone: "t/0/1"}, Counts{Altered: 1}, 0, 0},
		{"fired before its cancel", []Request{{soon, "t/0/1", 1, ""}, {soon, "t/0/2", 0, "t/0/1"}}, map[string]int{"t/0/1": 1}, nil, Counts{Received: 1}, 0, 1},
		{"fired twice", []Request{{soon, "t/0/1", 1, ""}}, map[string]int{"t/0/1": 2}, nil, Counts{Received: 1, Duplicated: 1}, 0, 0},
		{"not fired", []Request{{soon, "t/0/1", 1, ""}}, nil, nil, Counts{Lost: 1}, 0, 0},
		{"fired what was replaced", []Request{{gone, "t/0/1", far, ""}, {gone, "t/0/2", far, ""}}, map[string]int{"t/0/1": 1}, pending{gone: "t/0/2"}, Counts{Uncancelled: 1}, 0, 0},
		{"fired early, and there", []Request{{soon, "t/0/1", far, ""}}, map[string]int{"t/0/1": 1}, pending{soon: "t/0/1"}, Counts{Received: 1, Early: 1}, 0, 0},
		{"fired early", []Request{{soon, "t/0/1", far, ""}}, map[string]int{"t/0/1": 1}, nil, Counts{Received: 1, Early: 1}, 0, 0},
		{"nobody has scheduled it", nil, nil, pending{gone: "t/0/1"}, Counts{Altered: 1}, 0, 0},
	} {
		f := NewFold(c.log, c.fired)
		got := f.Judge(c.left, due, func(id string, t *Timer) bool { return strings.HasPrefix(id, "gone-") && !t.Replaced })
		got.Scheduled = 0
		if got != c.want || f.Cancelled != c.cancelled || f.NotCancelled != c.notCancelled {
			t.Errorf("%s: %+v, want %+v; %d cancelled, %d not", c.name, got, c.want, f.Cancelled, f.NotCancelled)
		}
	}
}
