package main

import (
	"io"
	"sync"
)

// clearLine takes what stands in the terminal's line away.
const clearLine = "\r\x1b[K"

// screen is a terminal that progress bars and log lines share. A line takes the
// place of the bar, which draws itself again below it. mu guards w.
type screen struct {
	mu sync.Mutex
	w  io.Writer
}

// Write draws a bar.
func (s *screen) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.w.Write(b)
}

// lines is the screen for whoever writes whole lines.
type lines struct{ *screen }

func (l lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, err := io.WriteString(l.w, clearLine); err != nil {
		return 0, err
	}
	return l.w.Write(b)
}
