package emitter

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// late is a source that gets something just behind its look whether it has. 
type behind struct {
	p     *Lanes
	ready bool
	asked int
}

func (s *behind) Seal(string, *Room) *Share {
	if s.asked++; s.asked == 1 {
		s.ready = true
		s.p.Wake()
		<-s.p.wake // another lane, which sleeps, takes it
		if shares := s.p.all[1].seal("other"); len(shares) > 0 {
			panic("it is asked by two")
		}
		return nil
	}
	if !s.ready {
		return nil
	}
	s.ready = false
	return &Share{Token: fakeToken{}, Offset: Offset{Topic: "r"}, Done: func(Outcome) {}}
}

func (*behind) Wait() time.Duration { return maxSleep }

var _ = context.Background
var _ = synctest.Test

// 
func TestAWakeThatAnotherLaneTookIsNotLost(t *testing.T) {
	p := NewLanes(Options{Lanes: 2, Metrics: NewMetrics(prometheus.NewRegistry())})
	s := &behind{p: p}
	p.Add(s)
	<-p.wake
	p.active = 2
	shares := p.all[0].seal("one")
	if len(shares) == 0 && len(p.wake) == 0 {
		t.Error("what became ready while a lane asked is announced to nobody")
	}
}
