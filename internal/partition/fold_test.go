package partition

import (
	"testing"
	"testing/synctest"
	"time"
)

// A view must not be used once deletions may be gone that it lacks: since it was last
// in sync or, if it was begun with nothing, since then.
func TestStaleView(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit = 12 * time.Hour
		for _, empty := range []bool{false, true} {
			begun := time.Now()
			f := &fold{p: &Partition{o: Options{MaxAbsence: limit}}, empty: empty, begun: begun, inSync: begun}
			if empty {
				f.inSync = begun.Add(-100 * limit) // the last one to write did so long ago
			}
			time.Sleep(limit)
			if why := f.stale(time.Now()); why != "" {
				t.Errorf("empty %v, after %s: %s", empty, limit, why)
			}
			time.Sleep(time.Minute)
			if f.stale(time.Now()) == "" {
				t.Errorf("empty %v: used after %s and a minute", empty, limit)
			}
		}
	})
}
