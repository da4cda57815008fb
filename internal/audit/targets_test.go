package audit

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/internal/audit/history"
	"github.com/waterclock/waterclock/internal/kafkatest"
)

// Any producer of requests can invent names of targets. The fate of requests for targets that do not exist is not
// known, however many there are, and a report lists a hundred of them.
func TestManyAbsentTargets(t *testing.T) {
	l := newLogs(kafkatest.OnFake(t, 1))
	l.some()
	const n = 2*notedAbsent + 1
	for i := range n {
		l.write(l.Topic, -1000, fmt.Appendf(nil, "away-%d", i), nil, waterclock.HeaderAt, strconv.FormatInt(base, 10),
			waterclock.HeaderTargetTopic, fmt.Sprintf("%s-away-%d", l.target, i))
	}
	l.checkpoint("p/3", 5+n)
	r := l.run(l.options())
	if got := r.Topics[0].Fates[history.Unknown]; got != n || len(r.Broken) > 0 {
		t.Errorf("%d of %d requests are unknown, broken %v", got, n, r.Broken)
	}
	some, rest := 0, 0
	for _, note := range r.Notes {
		if strings.Contains(note, "does not exist") {
			some++
		}
		if strings.HasPrefix(note, fmt.Sprintf("%d more targets do not exist", n-notedAbsent)) {
			rest++
		}
	}
	if some != notedAbsent || rest != 1 {
		t.Errorf("%d absent targets are noted, want %d and the number of the others: %q", some, notedAbsent, r.Notes)
	}
}

// At the limit an audit has all targets, and one beyond it says so.
func TestTargetsOfAnAuditAreBounded(t *testing.T) {
	w := newWriter(t)
	for i := range maxTargets {
		if err := w.s.db.Set(targetKey(false, fmt.Sprint("t", i)), nil, pebble.NoSync); err != nil {
			t.Fatal(err)
		}
	}
	if names, _, err := w.s.targets(); err != nil || len(names) != maxTargets {
		t.Fatalf("%d targets, %v", len(names), err)
	}
	if err := w.s.db.Set(targetKey(false, "one-more"), nil, pebble.NoSync); err != nil {
		t.Fatal(err)
	}
	if _, _, err := w.s.targets(); err == nil || !strings.Contains(err.Error(), "more than 20000 targets") {
		t.Errorf("one more: %v", err)
	}
}
