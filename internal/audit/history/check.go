package history

import (
	"cmp"
	"fmt"
)

// Check returns the violations that a history shows. It is a pure function, and each rule a file.
func Check(h History) []Violation { return newIndex(&h).check() }

// Judge is Check, and also returns the fate of each request, in the order of the history.
func Judge(h History) ([]Violation, []Fate) {
	x := newIndex(&h)
	byRequest := make(map[*Request]Fate, len(h.Requests))
	for _, f := range x.byID {
		for i, r := range f.requests {
			byRequest[r] = f.fates.byRequest[i]
		}
	}
	fates := make([]Fate, len(h.Requests))
	for i := range h.Requests {
		fates[i] = cmp.Or(byRequest[&h.Requests[i]], Unknown) // see cut
	}
	return x.check(), fates
}

// check applies all rules.
func (in *index) check() []Violation {
	for _, rule := range []func(*index, *facts){loss, duplicate, early, altered, order, told, poison, fold} {
		for _, f := range in.byID {
			rule(in, f)
		}
	}
	for _, f := range in.undone {
		undone(in, f)
	}
	for _, rule := range []func(*index, *changelog){position, writer} {
		for _, l := range in.logs {
			rule(in, l)
		}
	}
	for _, rule := range []func(*index){ledger, share} {
		rule(in)
	}
	return in.found
}

// broken notes a violation.
func (in *index) broken(rule, id string, where []Place, format string, args ...any) {
	v := Violation{Rule: rule, ID: id}
	if most := in.Scope.Described; most == 0 || len(in.found) < most {
		v.Where, v.Text = where, fmt.Sprintf(format, args...)
	}
	in.found = append(in.found, v)
}
