package packed

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/waterclock/waterclock/internal/timer"
)

// IDs that are gone are what two maps hold, of those that came since the last checkpoint
// began and of those that it deletes; and each is found.
func TestGoneAgainstModel(t *testing.T) {
	type list = map[string]timer.Ref
	rapid.Check(t, func(t *rapid.T) {
		x := new(Index)
		g, came, deleted, writing := NewGone(x, 3), list{}, list{}, false
		id := rapid.Custom(func(t *rapid.T) string { // some chunks' worth
			n := rapid.IntRange(0, 200).Draw(t, "id")
			return fmt.Sprintf("%0*d", 1+n*n%600, n)
		})
		take := func(t *rapid.T, from list, state State) {
			if len(from) == 0 {
				t.Skip("there is none")
			}
			which := rapid.SampledFrom(slices.Sorted(maps.Keys(from))).Draw(t, "which")
			sum := x.Sum([]byte(which))
			if got, stored, is := g.Take(x.Get(sum)); string(got) != which || is != state || state == Stale && stored != from[which] {
				t.Fatalf("%q from %v, state %d; want %q from %v, state %d", got, stored, is, which, from[which], state)
			}
			x.Delete(sum)
			delete(from, which)
		}
		t.Repeat(map[string]func(*rapid.T){
			"": func(t *rapid.T) {
				n, cloned, held := 0, 0, int64(0)
				g.Each(func(id []byte, stored timer.Ref, state State) {
					want, ok := came[string(id)]
					if state == Frozen {
						want = timer.Absent
						_, ok = deleted[string(id)]
					} else {
						held += goneBytes(id)
					}
					found, _, _ := g.At(x.Get(x.Sum(id)))
					if n++; !ok || stored != want || !bytes.Equal(found, id) {
						t.Fatalf("%q is gone from %v, state %d, found %q; want %v from %v", id, stored, state, found, ok, want)
					}
				})
				clone := g.Clone()
				clone.Each(func(id []byte, stored timer.Ref, state State) {
					found, from, is := g.At(x.Get(x.Sum(id)))
					if cloned++; stored != from || state != is || !bytes.Equal(found, id) {
						t.Fatalf("%q from %v, state %d, is %q from %v, state %d, in a clone", found, from, is, id, stored, state)
					}
				})
				if all := len(came) + len(deleted); n != all || cloned != all || g.Len() != all || x.Len() != all || g.Bytes() != held {
					t.Fatalf("%d of %d, %d in the index, %d bytes; want %d, %d bytes", n, g.Len(), x.Len(), g.Bytes(), all, held)
				}
			},
			"add": func(t *rapid.T) {
				for range rapid.IntRange(1, 100).Draw(t, "n") {
					id := id.Draw(t, "id")
					if x.Get(x.Sum([]byte(id))) != 0 {
						continue
					}
					came[id] = timer.Ref{Due: int64(len(came)), Offset: rapid.Int64Range(0, 2).Draw(t, "offset")}
					if !g.Add([]byte(id), came[id], x.Sum([]byte(id))) {
						t.Fatalf("%q is not taken", id)
					}
				}
			},
			"too long": func(t *rapid.T) {
				if g.Add(make([]byte, MaxBytes+1), timer.Absent, 1) {
					t.Fatal("an ID of more than MaxBytes is taken")
				}
			},
			"take":                     func(t *rapid.T) { take(t, came, Stale) },
			"take one that is deleted": func(t *rapid.T) { take(t, deleted, Frozen) },
			"take many that came": func(t *rapid.T) {
				for range min(len(came), rapid.IntRange(1, 200).Draw(t, "n")) {
					take(t, came, Stale)
				}
			},
			"take all that are deleted": func(t *rapid.T) {
				for len(deleted) > 0 {
					take(t, deleted, Frozen)
				}
			},
			"freeze": func(t *rapid.T) {
				if writing {
					t.Skip("a checkpoint is being written")
				}
				was := list{}
				g.Freeze(func(id []byte, stored timer.Ref) { was[string(id)] = stored })
				if !maps.Equal(was, came) {
					t.Fatalf("%v is to be deleted, want %v", was, came)
				}
				came, deleted, writing = list{}, came, true
			},
			"thaw": func(*rapid.T) {
				g.Thaw()
				clear(deleted)
				writing = false
			},
		})
	})
}

// What comes and goes again and again, while some stays, leaves no more memory behind than
// what is there, and a little.
func TestGoneForgetsWhatWasTaken(t *testing.T) {
	x := new(Index)
	g := NewGone(x, 3)
	add := func(id string) {
		if !g.Add([]byte(id), timer.Ref{Due: 1, Offset: 2}, x.Sum([]byte(id))) {
			t.Fatalf("%q is not taken", id)
		}
	}
	for i := range 100_000 {
		add(fmt.Sprint("comes and goes ", i))
		if i%500 == 0 {
			add(fmt.Sprint("stays ", i))
		}
		sum := x.Sum(fmt.Append(nil, "comes and goes ", i))
		g.Take(x.Get(sum))
		x.Delete(sum)
	}
	held := 0
	for _, c := range g.lists[g.now].chunks {
		held += cap(c.b) + chunkHeader
	}
	if limit := 2*int(g.Bytes()) + 2*chunkBytes; g.Len() != 200 || held > limit {
		t.Errorf("%d bytes are held of %d IDs, want %d at most", held, g.Len(), limit)
	}
	for i := 0; i < 100_000; i += 500 {
		id := fmt.Append(nil, "stays ", i)
		if found, stored, _ := g.At(x.Get(x.Sum(id))); !bytes.Equal(found, id) || stored.Offset != 2 {
			t.Fatalf("%q is found as %q, from %v", id, found, stored)
		}
	}
}
