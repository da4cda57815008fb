package beats

import (
	"testing"
	"testing/synctest"
	"time"
)

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
					t.Errorf("round %d: ticker %d ticks at %s, the first one at %s", round, i+2, got.Sub(begin), at.Sub(begin))
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
