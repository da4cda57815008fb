package simulation

import (
	"slices"
	"testing"

	"github.com/waterclock/waterclock/internal/ownership"
)

// The states that a fault can hit a partition in.
const (
	restoring = "restoring"
	isLive    = "live"
	draining  = "draining"
	inFlight  = "step in flight"
)

func states() []string { return []string{restoring, isLive, draining, inFlight} }

// enoughSeeds is after how many seeds a cell of the table of coverage that is empty needs a reason.
const enoughSeeds = 1000

// unexplained says of a cell that it is empty and nobody knows why.
const unexplained = "not hit yet"

// whyEmpty is why a fault cannot hit a partition in a state.
func whyEmpty(c cell) string {
	if why := impossible()[c]; why != "" {
		return why
	}
	return unexplained
}

// impossible are the cells that cannot be hit, and why.
func impossible() map[cell]string {
	return map[cell]string{}
}

// statesOf are the states of an instance's partitions.
func (w *world) statesOf(number int) map[string]bool {
	states := make(map[string]bool)
	for _, p := range w.hosts[number].partitions() {
		s := p.Status()
		switch s.State {
		case ownership.Acquiring, ownership.Replaying, ownership.Gated:
			states[restoring] = true
		case ownership.Live, ownership.Stalled:
			states[isLive] = true
		case ownership.Failed, ownership.Gone:
		}
		if state, owned := p.Life().Serving(); !owned && state != ownership.Gone {
			states[draining] = true
		}
		if s.Queued > 0 {
			states[inFlight] = true
		}
	}
	return states
}

// unexplained are the cells that no seed has hit, and that have no reason.
func (to *totals) unexplained() (cells []cell) {
	to.mu.Lock()
	defer to.mu.Unlock()
	for _, k := range kinds() {
		for _, state := range states() {
			if c := (cell{k.name, state}); to.Coverage[k.name][state] == 0 && whyEmpty(c) == unexplained {
				cells = append(cells, c)
			}
		}
	}
	return cells
}

// complain says which cells contradict the reasons there are.
func (to *totals) complain(t *testing.T) {
	if to.Seeds < enoughSeeds {
		return
	}
	for _, c := range to.unexplained() {
		t.Errorf("%q hit no partition that was %q, and nobody says why", c.fault, c.state)
	}
	for c, why := range impossible() {
		if n := to.Coverage[c.fault][c.state]; n > 0 {
			t.Errorf("%q hit a partition that was %q %d times, and that was said to be impossible: %s", c.fault,
				c.state, n, why)
		}
	}
}

// TestImpossibleCells: each pair that is said to be impossible is a cell of the table of faults and states.
func TestImpossibleCells(t *testing.T) {
	for c := range impossible() {
		if !slices.Contains(states(), c.state) ||
			!slices.ContainsFunc(kinds(), func(k kind) bool { return k.name == c.fault }) {
			t.Errorf("%+v is no cell", c)
		}
	}
}
