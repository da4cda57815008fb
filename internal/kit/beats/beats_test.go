package beats

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A receiver that has stopped, one that is slow, and tickers that are stopped or made meanwhile
// make no other ticker late, and a slow receiver finds one tick waiting, not all that it missed.
func TestASickReceiverDelaysNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const every, rounds = 100 * time.Millisecond, 40
		begin := time.Now()
		blocked, slow, healthy := NewTicker(every), NewTicker(every), NewTicker(every)
		ticks := 0
		var receiver sync.WaitGroup
		receiver.Go(func() {
			for range slow.C {
				ticks++
				time.Sleep(7 * every / 2)
			}
		})
		for round := 1; round <= rounds; round++ {
			<-healthy.C
			if got, want := time.Since(begin), phase+time.Duration(round-1)*every; got != want {
				t.Fatalf("tick %d comes after %s, want %s", round, got, want)
			}
			other := NewTicker(every)
			defer other.Stop()
			if round%2 == 0 {
				other.Stop()
			}
		}
		if n := len(blocked.C); n != 1 {
			t.Errorf("%d ticks wait for the receiver that has stopped", n)
		}
		for _, ticker := range []*Ticker{blocked, slow, healthy} {
			ticker.Stop()
		}
		close(slow.c)
		receiver.Wait()
		if ticks < rounds/5 || ticks > rounds/3 {
			t.Errorf("the slow receiver had %d ticks in %d intervals", ticks, rounds)
		}
	})
}

// A bubble's clock begins at midnight. So ticks come at the same moments in each run, and a test
// that fails there fails again.
func TestBubblesTickAtTheSameMoments(t *testing.T) {
	for _, every := range []time.Duration{100 * time.Millisecond, 250 * time.Millisecond, time.Second} {
		synctest.Test(t, func(t *testing.T) {
			begin := time.Now()
			ticker := NewTicker(every)
			defer ticker.Stop()
			for n := range 3 {
				<-ticker.C
				if got, want := time.Since(begin), phase+time.Duration(n)*every; got != want {
					t.Errorf("every %s: tick %d comes after %s", every, n+1, got)
				}
			}
		})
	}
}

// The next tick is phase after a multiple of the interval, and not the one that is now.
func TestUntilNext(t *testing.T) {
	for _, test := range []struct {
		now  time.Time
		want time.Duration
	}{
		{time.Unix(1_700_000_000, 0), phase},
		{time.Unix(1_700_000_000, int64(phase)-1), 1},
		{time.Unix(1_700_000_000, int64(phase)), time.Second},
		{time.Unix(1_700_000_000, int64(phase)+1), time.Second - 1},
		{time.Unix(-10, 0), phase}, // the clock was never set
	} {
		if got := untilNext(test.now, time.Second); got != test.want {
			t.Errorf("%s: %s, want %s", test.now.UTC(), got, test.want)
		}
	}
}

// Tickers that begin at different moments tick at the same ones, once in each interval, also
// where the receiver was slow.
func TestTickersTickTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const every = 100 * time.Millisecond
		begin := time.Now()
		var tickers []*Ticker
		for range 7 {
			tickers = append(tickers, NewTicker(every))
			time.Sleep(13 * time.Millisecond)
		}
		time.Sleep(3 * every) // ticks are dropped
		for _, ticker := range tickers {
			<-ticker.C
		}
		var last time.Time
		for round := range 5 {
			at := <-tickers[0].C
			for i, ticker := range tickers[1:] {
				if got := <-ticker.C; !got.Equal(at) {
					t.Errorf("round %d: ticker %d ticks at %s, the first one at %s", round, i+2, got.Sub(begin),
						at.Sub(begin))
				}
			}
			if round > 0 && at.Sub(last) != every {
				t.Errorf("round %d: %s after the last one", round, at.Sub(last))
			}
			last = at
		}
		for range 2 {
			for _, ticker := range tickers {
				ticker.Stop()
			}
		}
		time.Sleep(3 * every)
		for i, ticker := range tickers {
			if len(ticker.C) > 0 {
				t.Errorf("ticker %d ticks after its end", i+1)
			}
		}
	})
}
