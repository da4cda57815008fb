package statestore

import "time"

const (
	// leastSpace bytes must be free on the disk, on top of the store's size: a compaction may write all of it
	// once more before it removes the old tables.
	leastSpace = 256 << 20
	// saySpace is the time between two warnings that there is less.
	saySpace = 10 * time.Minute
)

// freeBytes is what the store's disk has free for this process, or -1 if that is not known.
func (o *Options) freeBytes() int64 {
	usage, err := o.fs().GetDiskUsage(o.Dir)
	if err != nil {
		return -1 // for example a file system in memory
	}
	return int64(min(usage.AvailBytes, 1<<62))
}

// lookAtSpace warns if the disk is nearly full. A full disk ends the process.
func (u *upkeep) lookAtSpace() {
	free := u.s.o.freeBytes()
	takes := u.s.db.Metrics().DiskSpaceUsage()
	if need := int64(takes) + leastSpace; free >= 0 && free < need && u.full.Due(saySpace) {
		u.s.o.Logger.Warn("the disk of the data directory is nearly full: the instance ends when it is; make room, or give it a larger one",
			"directory", u.s.o.Dir, "free_bytes", free, "wanted_bytes", need, "store_bytes", takes)
	}
}
