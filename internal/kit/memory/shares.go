package memory

import (
	"log/slog"
	"os"
	"runtime/debug"
)

const (
	mib = 1 << 20

	// Minimum is the smallest size that can be divided.
	Minimum = 256 * mib

	// process is memory that neither Go's heap nor the store accounts for: the pages of the program itself, the
	// stacks of threads, and malloc's memory for each thread.
	process = 44 * mib
	// replayMost limits one replay. Larger tables bring no gain.
	replayMost = 64 * mib
	// fetchMost limits the fetches of requests. With more they bring requests that no partition has room for yet.
	fetchMost = 16 * mib
	// replaysMost and replaysLeast bound how many replays run concurrently.
	replaysMost, replaysLeast = 4, 2
	// percent of the live data may be garbage while there is room.
	percent = 400
)

// Shares divides the memory of a process, in bytes. No part shrinks when the whole grows.
type Shares struct {
	Total int64
	// Wheel holds timers that fall due soon.
	Wheel int64
	// Dirty holds changes of committed steps that the store lacks; half of it is being written while the other half
	// fills.
	Dirty int64
	// Requests and Firings hold requests and firings that are not committed yet.
	Requests, Firings int64
	// Fetch limits the fetches of requests in flight, over all brokers. It is taken from Requests.
	Fetch int64
	// Store is for memtables, cached blocks and filters of the local store.
	Store int64
	// Replay limits the entries that one replay of a changelog collects before it writes a table. Replays is how many
	// replays may run concurrently; with fewer cores fewer run.
	Replay  int64
	Replays int
	// Questions limits the reads of queries about many timers from the store.
	Questions int64
	// Calls limits the bodies and responses of the HTTP API.
	Calls int64
	// Heap is the runtime's soft limit.
	Heap int64
}

var _ slog.LogValuer = Shares{}

// Divide divides a size of at least [Minimum].
func Divide(total int64) Shares {
	s := Shares{
		Total:     total,
		Wheel:     total / 4,
		Dirty:     total / 8,
		Firings:   total / 16,
		Fetch:     min(fetchMost, total/64),
		Store:     total / 8,
		Replay:    min(replayMost, total/16),
		Questions: total * 3 / 64,
		Calls:     total / 8,
		Heap:      total - process,
	}
	s.Requests = total/16 - s.Fetch
	s.Replays = int(min(replaysMost, max(replaysLeast, total/8/s.Replay)))
	if storeOutside {
		s.Heap -= s.Store + s.Store/4 // some is lost between blocks
	}
	return s
}

// LogValue implements slog.LogValuer.
func (s Shares) LogValue() slog.Value {
	all := []slog.Attr{slog.String("total", inMiB(s.Total)), slog.String("heap", inMiB(s.Heap))}
	for _, x := range []struct {
		name string
		size int64
	}{
		{"wheel", s.Wheel}, {"dirty", s.Dirty}, {"requests", s.Requests}, {"firings", s.Firings},
		{"fetch", s.Fetch}, {"store", s.Store}, {"questions", s.Questions}, {"calls", s.Calls}, {"replay", s.Replay},
	} {
		all = append(all, slog.String(x.name, inMiB(x.size)))
	}
	return slog.GroupValue(append(all, slog.Int("replays", s.Replays))...)
}

// Limit makes Heap the soft limit of this process's runtime. GOMEMLIMIT and GOGC override it.
func (s *Shares) Limit() {
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(s.Heap)
	}
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(percent)
	}
}
