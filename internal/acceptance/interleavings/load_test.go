package interleavings

import (
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// load is a steady stream of timers.
type load struct {
	w    *world
	stop chan struct{}
	done chan struct{}
	n    int   // sent; the stream's own until done
	err  error // of a produce
}

// load begins to send perSecond timers a second, due that much later each.
func (w *world) load(perSecond int, ahead time.Duration) *load {
	l := &load{w: w, stop: make(chan struct{}), done: make(chan struct{})}
	go l.run(time.Second/time.Duration(perSecond), ahead)
	return l
}

func (l *load) run(every, ahead time.Duration) {
	defer close(l.done)
	failed := make(chan error, 1)
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-l.stop:
			l.err = l.w.cl.Flush(l.w.Context())
			select {
			case l.err = <-failed:
			default:
			}
			return
		case now := <-tick.C:
			l.w.cl.Produce(l.w.Context(), l.w.timer(fmt.Sprint("load-", l.n), "1", now.Add(ahead)), func(_ *kgo.Record, err error) {
				if err != nil {
					select {
					case failed <- err:
					default:
					}
				}
			})
			l.n++
		}
	}
}

// end stops the stream and adds what it sent to want.
func (l *load) end(want map[string][]string) {
	l.w.Helper()
	close(l.stop)
	<-l.done
	if l.err != nil {
		l.w.Fatalf("send: %v", l.err)
	}
	for i := range l.n {
		values(want, fmt.Sprint("load-", i), "1")
	}
}
