package intake

import (
	"github.com/waterclock/waterclock/internal/partlog"
	"slices"
	"sync"
)

// sizes records how many bytes came with each Deliver. mu guards the field below it.
type sizes struct {
	sink
	mu    sync.Mutex
	bytes []int
}

func (s *sizes) Deliver(r partlog.Read) {
	recs := r.Records
	n := 0
	for _, r := range recs {
		n += len(r.Value)
	}
	s.mu.Lock()
	s.bytes = append(s.bytes, n)
	s.mu.Unlock()
	s.sink.Deliver(r)
}

func (s *sizes) got() []int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.bytes)
}
