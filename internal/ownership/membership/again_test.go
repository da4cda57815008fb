package membership

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
)

// A member that expects another round asks until that has begun, and then joins it, once. It does not begin it.
func TestAgain(t *testing.T) {
	for _, x := range []struct {
		name   string
		begins time.Duration // when the other round does; negative: never
		joined time.Duration // when the group client joins by itself; negative: never
		fails  error         // the answer before it begins
		want   int           // how often it is told to join
		by     time.Duration // and when, at the latest
	}{
		{"the owner gives up soon", 35 * time.Millisecond, -1, nil, 1, 50 * time.Millisecond},
		{"the owner takes a second", time.Second, -1, nil, 1, 1020 * time.Millisecond},
		{"the coordinator is away for a while", 500 * time.Millisecond, -1, errors.New("away"), 1,
			520 * time.Millisecond},
		{"it never begins", -1, -1, nil, 0, againFor},
		{"the group client heard of it first", 300 * time.Millisecond, 250 * time.Millisecond, nil, 0, againFor},
	} {
		t.Run(x.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begun := time.Now()
				asked, told := 0, []time.Duration{}
				var a *again
				a = newAgain(func(context.Context) error {
					asked++
					if x.begins >= 0 && time.Since(begun) >= x.begins {
						return kerr.RebalanceInProgress
					}
					return x.fails
				}, func() {
					told = append(told, time.Since(begun))
					a.expect(false) // as the join does
				})
				ctx, stop := context.WithCancel(t.Context())
				ended := make(chan struct{})
				go func() { defer close(ended); a.run(ctx) }()
				time.Sleep(time.Minute)
				synctest.Wait()
				if asked > 0 {
					t.Errorf("asked %d times although no round is expected", asked)
				}
				begun = time.Now()
				a.expect(true)
				if x.joined >= 0 {
					time.AfterFunc(x.joined, func() { a.expect(false) })
				}
				time.Sleep(time.Minute)
				synctest.Wait()
				if len(told) != x.want || len(told) > 0 && told[0] > x.by || asked > int(againFor/againEvery) {
					t.Errorf("told to join at %v, asked %d times", told, asked)
				}
				stop()
				<-ended
			})
		})
	}
}

// A later assignment that announces no round ends the wait for one.
func TestAgainEndsWithTheNextAssignment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		a := newAgain(func(context.Context) error { asked++; return nil }, func() { t.Error("told to join") })
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); a.run(ctx) }()
		a.expect(true)
		time.Sleep(5 * againEvery / 2)
		a.expect(false)
		time.Sleep(time.Minute)
		synctest.Wait()
		if asked != 2 {
			t.Errorf("asked %d times", asked)
		}
		stop()
		<-ended
	})
}
