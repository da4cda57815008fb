package main

import (
	"io"
	"sync"
)

// clearLine clears the current line of the terminal.
const clearLine = "\r\x1b[K"

// screen is a terminal that progress bars and log lines share. A line replaces the bar, and the bar draws itself again
// below. mu guards w.
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

// lines is the screen for writers of whole lines.
type lines struct{ *screen }

func (l lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, err := io.WriteString(l.w, clearLine); err != nil {
		return 0, err
	}
	return l.w.Write(b)
}
