package membership

import (
	"context"
	"sync"
	"testing"
)

// If all members leave, nobody takes over, so none of them waits for that. "helm uninstall" is such a case.
func TestNobodyWaitsWhenAllLeave(t *testing.T) {
	onBoth(t, func(t *testing.T, x *setup) {
		var all []*resident
		for _, name := range []string{"a", "b", "c"} {
			all = append(all, x.join(x.calm(name)))
		}
		x.shared(1, all...)
		ctx, cancel := context.WithTimeout(t.Context(), testLimit)
		defer cancel()
		var leaving sync.WaitGroup
		for _, m := range all {
			leaving.Go(func() {
				m.g.HandOver(ctx)
				m.stop()
			})
		}
		leaving.Wait()
		if ctx.Err() != nil {
			t.Errorf("they have waited for each other, %s long", testLimit)
		}
	})
}
