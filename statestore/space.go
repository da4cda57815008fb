package statestore

import "time"

const (
	// leastSpace is what must be free on the disk, in bytes, beside as much as the store takes: a
	// compaction may write all of it once more before it removes what it replaces.
	leastSpace = 256 << 20
	// saySpace is how often it is said that there is less.
	saySpace = 10 * time.Minute
)

// freeBytes is what the disk of the store has free for this process, -1 if that cannot be told.
func (s *Store) freeBytes() int64 {
	usage, err := s.o.fs().GetDiskUsage(s.o.Dir)
	if err != nil {
		return -1 // a file system in memory, for one
	}
	return int64(min(usage.AvailBytes, 1<<62))
}

// lookAtSpace warns of a disk that is nearly full. A full one ends the process. It is run's own.
func (s *Store) lookAtSpace() {
	free := s.freeBytes()
	if free < 0 || time.Since(s.spaceSaid) < saySpace {
		return
	}
	takes := s.db.Metrics().DiskSpaceUsage()
	if need := int64(takes) + leastSpace; free < need {
		s.spaceSaid = time.Now()
		s.o.Logger.Warn("the disk of the data directory is nearly full: the instance ends when it is; make room, or give it a larger one",
			"directory", s.o.Dir, "free_bytes", free, "wanted_bytes", need, "store_bytes", takes)
	}
}
