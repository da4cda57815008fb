package statestore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/waterclock/waterclock/internal/timer"
)

// viewed is a row of a view.
type viewed struct {
	ref    timer.Ref
	id     string
	parked string
}

// A view shows all timers that are pending at one moment, parked for any number of targets or
// not, in both orders and from any place. It shows nothing that happens later.
func TestViewIsOneMoment(t *testing.T) {
	s := memStore(t)
	k := s.Partition(partition0).Acquire()
	rnd := rand.New(rand.NewPCG(1, 2))
	all := map[string]*timer.Timer{}
	parked := map[string]string{}
	for i := range int64(400) {
		x := newTimer(fmt.Sprintf("%c%d", 'a'+i%3, i), rnd.Int64N(60)-10, i)
		if i%17 == 0 {
			x.Steering = &timer.Steering{Paused: i%2 == 0, Triggered: i%2 == 1, By: 1000 + i}
		}
		all[string(x.ID)] = x
		must(t, k.Apply(batchAt(i, put(x, timer.Absent))))
	}
	for _, x := range all { // some targets have one, some many
		if n := rnd.IntN(12); n < 9 && !x.IsPaused() {
			parked[string(x.ID)] = fmt.Sprint("target/", n*n)
			must(t, k.Park(parked[string(x.ID)], []*timer.Timer{x}))
		}
	}
	v, err := k.View()
	must(t, err)
	defer func() { must(t, v.Close()) }()
	var byDue []viewed
	for id, x := range all {
		byDue = append(byDue, viewed{x.Ref(), id, parked[id]})
	}
	slices.SortFunc(byDue, func(a, b viewed) int { return a.ref.Compare(b.ref) })
	byID := slices.Clone(byDue)
	slices.SortFunc(byID, func(a, b viewed) int { return bytes.Compare([]byte(a.id), []byte(b.id)) })
	must(t, k.Apply(batchAt(1000, put(newTimer("later", 20, 1000), timer.Absent)))) // the view does not have it
	_, err = k.Unpark("target/4", 10_000, 8<<20)
	must(t, err)

	for range 100 {
		from, to := byDue[rnd.IntN(len(byDue))].ref, byDue[rnd.IntN(len(byDue))].ref
		from.Offset += rnd.Int64N(2)
		onlyParked, limit := rnd.IntN(3) == 0, rnd.IntN(len(byDue))
		var got, want []viewed
		must(t, v.Due(from, to, onlyParked, func(r *Row) (bool, error) {
			x, err := r.Timer()
			must(t, err)
			id, err := r.ID()
			must(t, err)
			if !bytes.Equal(x.AppendTo(nil), all[string(id)].AppendTo(nil)) {
				t.Fatalf("%s is %+v", id, x)
			}
			got = append(got, viewed{r.Ref, string(id), r.ParkedFor})
			return len(got) <= limit, nil
		}))
		for _, x := range byDue {
			if x.ref.Compare(from) >= 0 && x.ref.Compare(to) < 0 && (x.parked != "" || !onlyParked) &&
				len(want) <= limit {
				want = append(want, x)
			}
		}
		if !slices.Equal(got, want) {
			t.Fatalf("from %v to %v, parked only %v, %d: got %v, want %v", from, to, onlyParked, limit, got, want)
		}

		start, prefix := byID[rnd.IntN(len(byID))].id, []string{"", "a", "b1", "c", "x"}[rnd.IntN(5)]
		got, want = nil, nil
		must(t, v.IDs([]byte(start), []byte(prefix), func(id []byte, at Location) (bool, error) {
			r, err := v.Row(at)
			must(t, err)
			if own, err := r.ID(); err != nil || !bytes.Equal(own, id) {
				t.Fatalf("the row of %s is that of %s: %v", id, own, err)
			}
			got = append(got, viewed{at.Ref(), string(id), r.ParkedFor})
			return len(got) <= limit, nil
		}))
		for _, x := range byID {
			if x.id >= start && bytes.HasPrefix([]byte(x.id), []byte(prefix)) && len(want) <= limit {
				want = append(want, x)
			}
		}
		if !slices.Equal(got, want) {
			t.Fatalf("from %q with prefix %q, %d: got %v, want %v", start, prefix, limit, got, want)
		}
	}
	for id, x := range all {
		got, parkedFor, err := k.Find([]byte(id))
		must(t, err)
		if still := strings.TrimSuffix(parked[id], "target/4"); !bytes.Equal(got.AppendTo(nil), x.AppendTo(nil)) ||
			parkedFor != still {
			t.Fatalf("%s is found as %+v, parked for %q", id, got, parkedFor)
		}
	}
}

// A timer goes to the parked rows and back, and the bound of scans is raised each time. No view of
// any moment misses it or has it twice.
func TestAViewMissesNothingThatIsParkedMeanwhile(t *testing.T) {
	s := memStore(t)
	defer s.Close()
	k := s.Partition(partition0).Acquire()
	x, far := newTimer("x", 10, 1), newTimer("far", 1000, 2)
	must(t, k.Apply(batchAt(1, put(x, timer.Absent), put(far, timer.Absent))))
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	var viewers sync.WaitGroup
	for range 8 { // more than there are processors, so that they stop anywhere
		viewers.Go(func() {
			for ctx.Err() == nil {
				v, err := k.View()
				if err != nil {
					t.Error(err)
					return
				}
				n := 0
				err = v.Due(timer.Ref{Due: math.MinInt64}, timer.Ref{Due: math.MaxInt64}, false,
					func(*Row) (bool, error) { n++; return true, nil })
				if err = errors.Join(err, v.Close()); err != nil || n != 2 {
					t.Errorf("a view has %d of 2 timers, %v", n, err)
					cancel()
				}
			}
		})
	}
	for ctx.Err() == nil {
		must(t, k.Park(unhealthy, []*timer.Timer{x}))
		must(t, k.p.sweep())
		if _, err := k.Unpark(unhealthy, 1, 1<<20); err != nil {
			t.Error(err)
		}
	}
	viewers.Wait()
}

// Close waits for open views. Other calls do not wait: they are rejected immediately.
func TestViewHoldsUpOnlyClose(t *testing.T) {
	s := memStore(t)
	k := s.Partition(partition0).Acquire()
	must(t, k.Apply(batchAt(1, put(newTimer("a", 1, 1), timer.Absent))))
	v, err := k.View()
	must(t, err)
	closed := make(chan error, 1)
	go func() { closed <- s.Close() }()
	refused := make(chan error, 1)
	go func() {
		err := error(nil)
		for err == nil {
			err = k.LookupAll([][]byte{[]byte("a")}, make([]timer.Ref, 1))
		}
		refused <- err
	}()
	select {
	case err = <-refused:
	case <-time.After(20 * time.Second):
		t.Error("a call waits for the view")
	}
	if !errors.Is(err, ErrClosed) {
		t.Errorf("a call beside Close: %v", err)
	}
	select {
	case err := <-closed:
		t.Errorf("Close did not wait for the view: %v", err)
	default:
	}
	rows := 0
	must(t, v.Due(timer.Ref{}, timer.Ref{Due: 1 << 60}, false, func(*Row) (bool, error) { rows++; return true, nil }))
	if rows != 1 {
		t.Errorf("the view shows %d rows", rows)
	}
	must(t, v.Close())
	must(t, <-closed)
}
