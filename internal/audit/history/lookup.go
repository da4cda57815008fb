package history

import (
	"cmp"
	"slices"
	"sort"
)

// One ID may have a hundred thousand entries in these lists, and the rules ask for each request or emission which of
// the others belong to it. So entries are looked up by search, never by walking the list.

// lookUp sorts the lists that the rules search. whole: the history has all requests from the beginning of the log.
func (f *facts) lookUp(whole bool) {
	f.fired = newBySource(f.emissions, func(*Emission) bool { return true })
	f.refused = newBySource(f.letters, func(l *Letter) bool { return l.Emission })
	f.triggers = newTriggers(f.requests)
	f.trace(whole)
}

// maxOrigins bounds the requests that may have scheduled a timer that was moved.
const maxOrigins = 32

// origins are the requests that may have scheduled a timer, if the history has all of them.
type origins struct {
	of    []*Request
	known bool
}

// trace finds the requests that may have scheduled the timers that others move.
func (f *facts) trace(whole bool) {
	if !slices.ContainsFunc(f.requests, func(r *Request) bool { return r.Action == Moves }) {
		return
	}
	f.origins, f.moved = make(map[Place]origins), make(map[Place][]Place)
	dead := make(map[Place]bool)
	for _, l := range f.letters {
		dead[l.Source] = dead[l.Source] || !l.Emission
	}
	now := origins{known: whole}
	for _, r := range f.requests {
		switch r.Action {
		case Schedules:
			switch {
			case dead[r.Place]:
			case r.If == "":
				now = origins{of: []*Request{r}, known: true}
			case len(now.of) < maxOrigins:
				now.of = append(now.of[:len(now.of):len(now.of)], r)
			default:
				now = origins{}
			}
		case Moves:
			if f.origins[r.Place] = now; now.known && len(now.of) == 1 {
				from := now.of[0].Place
				f.moved[from] = append(f.moved[from], r.Place)
			}
		}
	}
}

// originsOf returns the requests that may have scheduled the timer of r.
func (f *facts) originsOf(r *Request) origins {
	switch r.Action {
	case Schedules:
		return origins{of: []*Request{r}, known: true}
	case Moves:
		return f.origins[r.Place]
	}
	return origins{known: true}
}

// origin returns the request that has scheduled the timer of the request at a place, or the place itself if that is not
// known.
func (f *facts) origin(x *index, source Place) Place {
	if r := x.sent[source]; r != nil && r.Action == Moves {
		if o := f.origins[source]; o.known && len(o.of) == 1 {
			return o.of[0].Place
		}
	}
	return source
}

// sources returns the places that the timer of r, which schedules, may come from, as far as only r may have scheduled
// it: its own first, then those of requests that move.
func (f *facts) sources(r *Request) []Place {
	return append([]Place{r.Place}, f.moved[r.Place]...)
}

// makes reports whether r may make a timer, which then comes from it.
func (r *Request) makes() bool { return r.Action == Schedules || r.Action == Moves }

// occurs is an emission, or the dead letter of one.
type occurs interface {
	occurs() (source Place, occurrence int64)
}

func (e *Emission) occurs() (Place, int64) { return e.Source, e.Occurrence }

func (l *Letter) occurs() (Place, int64) { return l.Source, l.Occurrence }

// bySource has emissions, or dead letters of emissions, in the order of their requests and occurrences.
type bySource[T occurs] []T

func newBySource[T occurs](all []T, keep func(T) bool) bySource[T] {
	list := make(bySource[T], 0, len(all))
	for _, x := range all {
		if keep(x) {
			list = append(list, x)
		}
	}
	slices.SortStableFunc(list, func(a, b T) int {
		source, occurrence := a.occurs()
		return -compareOccurrences(b, source, occurrence)
	})
	return list
}

func compareOccurrences[T occurs](x T, source Place, occurrence int64) int {
	s, n := x.occurs()
	return cmp.Or(comparePlaces(s, source), cmp.Compare(n, occurrence))
}

// contains reports whether there is an occurrence of a request.
func (b bySource[T]) contains(source Place, occurrence int64) bool {
	_, ok := slices.BinarySearchFunc(b, occurrence, func(x T, n int64) int { return compareOccurrences(x, source, n) })
	return ok
}

// ofRequest returns the entries of a request, by occurrence.
func (b bySource[T]) ofRequest(source Place) []T {
	compare := func(x T) int { s, _ := x.occurs(); return comparePlaces(s, source) }
	from := sort.Search(len(b), func(i int) bool { return compare(b[i]) >= 0 })
	to := from + sort.Search(len(b)-from, func(i int) bool { return compare(b[from+i]) > 0 })
	return b[from:to]
}

// triggers are the requests of an ID that trigger its timer, in the order of the log.
type triggers struct {
	offsets []int64
	latest  []int64 // the latest timestamp of this trigger and those behind it, in Unix ms
}

func newTriggers(requests []*Request) (t triggers) {
	for _, r := range requests {
		if r.Action == Triggers {
			t.offsets, t.latest = append(t.offsets, r.Offset), append(t.latest, r.Timestamp)
		}
	}
	for i := len(t.latest) - 2; i >= 0; i-- {
		t.latest[i] = max(t.latest[i], t.latest[i+1])
	}
	return t
}

// after returns how many triggers are behind an offset, and the latest timestamp of them.
func (t *triggers) after(offset int64) (n int, latest int64) {
	i := sort.Search(len(t.offsets), func(i int) bool { return t.offsets[i] > offset })
	if i == len(t.offsets) {
		return 0, 0
	}
	return len(t.offsets) - i, t.latest[i]
}

// triggersOf returns how many triggers the timer of r may have had, and the latest timestamp of them.
func (f *facts) triggersOf(r *Request) (n int, latest int64) {
	if r.mayTakeOver() || r.Action == Moves {
		return f.triggers.after(-1)
	}
	return f.triggers.after(r.Offset)
}
