package api

import (
	"strings"
	"testing"
	"time"
)

// scene is a history that is written down: requests one second apart, from second 1 on.
type scene struct{ history }

var sceneBegan = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func second(n float64) time.Time {
	return sceneBegan.Add(time.Duration(n * float64(time.Second)))
}

// add adds a request, whose caller was told of an outcome half a second later; "" tells nothing.
func (s *scene) add(action, cond, told string, behind *seen) *scene {
	n := len(s.entries)
	e := &entry{offset: int64(n), at: second(float64(n + 1)), action: action, cond: cond,
		source: "t/0/" + string(rune('0'+n))}
	if told != "" {
		e.decided, e.decidedBefore = &decision{told, behind}, second(float64(n)+1.5)
	}
	s.entries = append(s.entries, e)
	return s
}

func (s *scene) look(from, to float64, is seen) *scene {
	s.reads = append(s.reads, &read{second(from), second(to), "got", func(x *state) bool { return x.like(is) }})
	return s
}

func (s *scene) emits(source string, n int) *scene {
	s.emitted[source] = n
	return s
}

func (s *scene) wrong() string {
	err := s.fold()
	if err == nil {
		err = s.history.look()
	}
	if err == nil {
		return ""
	}
	return err.Error()
}

// The model allows what can be, and sees each kind of lie.
func TestTheModel(t *testing.T) {
	was, is := &seen{"t/0/0", "pending"}, &seen{"t/0/1", "pending"}
	for name, c := range map[string]struct {
		s    func(*scene)
		want string // in the error; empty: none
	}{
		"one after the other": {func(s *scene) {
			s.add("schedule", "", "scheduled", was).add("schedule", "", "replaced", is).add(
				"cancel", "", "cancelled", &seen{})
			s.look(1.6, 1.7, *was).look(2.6, 2.7, *is).look(3.6, 3.7, seen{})
		}, ""},
		"while it is written either is seen": {func(s *scene) {
			s.add("schedule", "", "scheduled", was).add("schedule", "", "replaced", is).look(1.9, 2.1, *was).look(
				1.95, 2.2, *is)
		}, ""},
		"a token that is dead answers": {func(s *scene) {
			s.add("schedule", "", "scheduled", was).add("schedule", "", "replaced", is).look(2.6, 2.7, *was)
		}, "was not so"},
		"not found for moving": {func(s *scene) {
			s.add("schedule", "", "scheduled", was).look(
				1.6, 1.7, seen{})
		}, "was not so"},
		"planned and not written": {func(s *scene) {
			s.add("schedule", "", "scheduled", was).look(
				0.5, 0.9, *was)
		}, "was not so"},
		"back in time": {func(s *scene) {
			s.add("schedule", "", "", nil).look(1.1, 1.2, *was).look(
				1.3, 1.4, seen{})
		}, "was not so"},
		"a decision that cannot be": {func(s *scene) {
			s.add("schedule", "", "scheduled", was).add(
				"schedule", "", "scheduled", is)
		}, "nothing that can have been"},
		"a condition is ignored": {func(s *scene) {
			s.add("schedule", "", "scheduled", was).add(
				"cancel", "t/0/7", "cancelled", nil)
		}, "nothing that can have been"},
		"a condition is met": {func(s *scene) {
			s.add("schedule", "", "scheduled", was).add(
				"cancel", "t/0/0", "cancelled", nil)
		}, ""},
		"another timer is shown": {func(s *scene) { s.add("schedule", "", "scheduled", is) },
			"nothing that can have been"},
		"triggered, and fires":       {func(s *scene) { s.fire().emits("t/0/0", 1) }, ""},
		"triggered, and never fires": {func(s *scene) { s.fire() }, "has fired"},
		"fires twice":                {func(s *scene) { s.fire().emits("t/0/0", 2) }, "has fired"},
		"fires though it is not to": {func(s *scene) { s.add("schedule", "", "scheduled", was).emits("t/0/0", 1) },
			"has fired"},
		"fires and is cancelled": {func(s *scene) {
			s.fire().add("cancel", "", "cancelled", nil).emits(
				"t/0/0", 1)
		}, "nothing that can have been"},
		"fires, then there is nothing": {func(s *scene) {
			s.fire().add("cancel", "", "not-found", nil).emits(
				"t/0/0", 1)
		}, ""},
		"is gone and has not fired": {func(s *scene) { s.fire().add("cancel", "", "not-found", nil) },
			"nothing that can have been"},
		"fires while it is paused": {func(s *scene) { s.soon().add("pause", "", "paused", nil).emits("t/0/0", 1) },
			"has fired"},
		"is paused, and stays": {func(s *scene) {
			s.soon().add("pause", "", "paused", nil).look(
				9, 9.1, seen{"t/0/0", "paused"})
		}, ""},
		"an effect of a later request": {func(s *scene) {
			s.add("schedule", "", "scheduled", was).add("cancel", "", "", nil).look(1.6, 1.7, seen{})
		}, "was not so"},
		"what nobody was told may count": {func(s *scene) {
			s.add("schedule", "", "scheduled", was).add("cancel", "", "", nil).look(2.6, 2.7, *was).look(
				2.8, 2.9, seen{})
		}, ""},
	} {
		s := &scene{history{id: "a", emitted: map[string]int{}}}
		c.s(s)
		if got := s.wrong(); c.want == "" && got != "" || !strings.Contains(got, c.want) {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}

// fire schedules and triggers.
func (s *scene) fire() *scene {
	return s.add("schedule", "", "scheduled", nil).add("trigger", "", "triggered", nil)
}

func (s *scene) soon() *scene {
	s.add("schedule", "", "scheduled", nil)
	s.entries[0].soon = true
	return s
}
