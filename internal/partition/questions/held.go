package questions

import (
	"sync"

	"github.com/waterclock/waterclock/internal/budget"
)

// held counts the bytes that the readings of one acquisition hold. Once the acquisition has ended, the account belongs
// to the next one. Then a question that is still under way no longer changes the account; it will get no answer anyway.
// held is safe for concurrent use.
type held struct {
	memory *budget.Account

	mu     sync.Mutex // guards what follows; held over calls of memory
	bytes  int64
	closed bool
}

// take takes more bytes, if there is room for them.
func (h *held) take(more int64) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if more > 0 && h.bytes+more > h.memory.Limit() {
		return false
	}
	h.set(h.bytes + more)
	return true
}

// give gives bytes back.
func (h *held) give(bytes int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.set(h.bytes - bytes)
}

func (h *held) set(bytes int64) {
	if h.bytes = bytes; !h.closed {
		h.memory.Set(bytes)
	}
}

// close gives all memory back.
func (h *held) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	h.memory.Set(0)
}
