package ownership

import (
	"fmt"
	"math"
	"time"

	"github.com/waterclock/waterclock/statestore"
)

// evidence is all by which it is decided whether a local view may be believed: gone on with,
// from its position, and used. What is not known yet is left out. Everything that is known has
// to speak for the view, and before it is used all must be known; a view that is refuted is
// wiped, and replayed from the changelog's start.
//
// # The argument
//
// A view is the fold of all that a log held below a position, at some time. It may be believed
// if (a) the changelog now is that log, cut nowhere below the position, and (b) whatever has
// happened from the position on can still be read, deletions above all.
//
// (a) A position says little: a log loses its tail with the power of all brokers, with an
// unclean leader, or when an older copy of its data is put back, and then grows past the same
// position. So three things must be as they were:
//
//   - The topic's ID. One ID is one topic forever (KIP-516), whatever its name.
//   - The name of the step whose checkpoint lies directly before the position. The name is
//     used once (a process's random ID, and a number), and the checkpoint is the last record of
//     its step. A batch is appended behind what its leader has then, and is nowhere else
//     later: so a log that shows the checkpoint at the same offset, committed, holds what was
//     before it when it was written, which is what the view has folded. The position is there
//     and not behind what else was read, claims and aborted steps: a log that was cut among
//     those may have a step in their place. A view that was broken off in a replay, behind a
//     timer, has no name, and is not believed. Nor is one whose checkpoint has been compacted,
//     because a later step followed and min.compaction.lag.ms has passed: nothing tells then a
//     log that went on from one that was put back, and compacted since.
//   - The leader epoch of what was last read (KIP-101, KIP-320). The log must still have
//     records of such an epoch up to there. It guards what the name cannot: a producer may
//     write a batch again that was cut, and by chance it comes to lie at the same offset behind
//     something else. Alone it would not do, for epochs are counted in the cluster's own data:
//     after that was put back they are given again.
//
// (b) Kafka keeps the last record of each key, but for a deletion: the cleaner that meets one
// first stamps it, with the time at which it may go: delete.retention.ms later, as it is set
// at that moment (KIP-534). A deletion behind the position was written after the view was
// last in sync. So it is there if all was read within the least delete.retention.ms that was
// in force since then; that was noted when it was in sync, and is asked for when the view is
// opened and again when it is used. Half of it is allowed, so that clocks may run unevenly, and
// for a deletion that was cut short by a setting that nobody saw, being altered twice.
//
// Three spans must be that short, see spans. Where the first is measured between two lives,
// only brokers' times count; the others are the longer one of what the two clocks here say, of
// which one stands still while the machine is suspended, and the other can be set.
type evidence struct {
	view statestore.Meta // Position -1: there is none
	step string          // of its checkpoint

	log  sight
	past spans
	// keeps is the least delete.retention.ms of the changelog that was seen since the view was
	// opened; 0: not asked for yet.
	keeps time.Duration
}

// sight is what the changelog shows.
type sight struct {
	id         [16]byte
	start, end int64
	// Up to epochEnd there are records of the epoch of what the view has read; -1: of none as
	// late. That is known once epochAsked.
	epochAsked bool
	epochEnd   int64
	read       int64 // up to where the view has read
	// named is the step whose checkpoint is committed directly before the view's position; "": none. That is known
	// once nameAsked.
	nameAsked bool
	named     string
}

// spans are those in which deletions may have gone unseen.
type spans struct {
	age    time.Duration // from when the view was last in sync to the first time that the log's end was reached
	making time.Duration // of a view that began with nothing: from then to the same time
	missed time.Duration // the longest from an end, as of when it was asked for, to the next, or to now
	known  bool
}

// refuted is why the view must not be believed, "" if nothing that is known speaks against it.
func (e *evidence) refuted() string {
	v := &e.view
	if v.Position >= 0 {
		if why := e.elsewhere(); why != "" {
			return why
		}
	}
	if !e.past.known {
		return ""
	}
	keeps, age := e.keeps, e.past.making
	if v.Position >= 0 {
		age = e.past.age
		if v.Keeps > 0 {
			keeps = min(keeps, v.Keeps)
		}
	}
	limit := keeps / 2
	if keeps == math.MaxInt64 { // forever
		limit = keeps
	}
	const gone = "deletions may be gone from the changelog"
	switch {
	case e.past.missed > limit:
		return fmt.Sprintf("nothing was read for %s, longer than %s: %s", e.past.missed.Round(time.Second), limit, gone)
	case age <= limit:
		return ""
	case v.Position < 0:
		return fmt.Sprintf("it was %s in the making, longer than %s: %s", age.Round(time.Second), limit, gone)
	}
	if v.InSync.IsZero() {
		return "it has never been in sync: " + gone
	}
	return fmt.Sprintf("it was last in sync at %s, longer ago than %s: %s", v.InSync.UTC().Format(time.RFC3339), limit, gone)
}

// elsewhere is why the view is not one of this log.
func (e *evidence) elsewhere() string {
	v, l := &e.view, &e.log
	switch {
	case v.Changelog != l.id:
		return "the changelog was recreated"
	case v.Position > l.end:
		return fmt.Sprintf("its position %d lies beyond the changelog's end %d", v.Position, l.end)
	case v.Position < l.start:
		return fmt.Sprintf("its position %d lies before the changelog's start %d", v.Position, l.start)
	case !v.Named || e.step == "":
		return fmt.Sprintf("no step names its position %d: a replay was broken off there, or an earlier version wrote it", v.Position)
	case l.epochAsked && l.epochEnd < l.read:
		return cutWhy(l.epochEnd, l.read)
	case l.nameAsked && l.named == "":
		return fmt.Sprintf("the checkpoint of its last step is not at offset %d of the changelog any more: it was compacted, or the log was cut and has grown again", v.Position-1)
	case l.nameAsked && l.named != e.step:
		return fmt.Sprintf("the checkpoint at offset %d of the changelog is of step %s, not %s: the log was cut and has grown again", v.Position-1, l.named, e.step)
	}
	return ""
}

// cutWhy says that a log was cut below what was read.
func cutWhy(end, read int64) string {
	if end < 0 {
		return fmt.Sprintf("the log was cut, or replaced: its leader knows of no epoch in which what was read below %d was written", read)
	}
	return fmt.Sprintf("the log was cut at %d or before, though it was read up to %d, and others have written there since", end, read)
}
