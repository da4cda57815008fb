package ownership

import (
	"fmt"
	"math"
	"time"

	"github.com/waterclock/waterclock/internal/kit/span"
	"github.com/waterclock/waterclock/statestore"
)

// evidence decides whether a local view can be reused, that is, continued from its position and
// used. Its fields fill up as the answers arrive. The view is refuted as soon as one of them speaks
// against it, and may be used only when all of them are known. A refuted view is wiped and replayed
// from the changelog's start.
//
// The [Follower] collects the evidence and asks for the verdict at four moments: when it opens the
// view (openLocal), before each replay to the end of the log (look), when the replay has found the step
// at the view's position (named), and last, before an acquisition uses the view (whyUnusable, with the
// time that a broker gave the claim).
//
// # The argument
//
// A view is the fold of everything that a log held below a position, at some time. It can be reused if (a) the
// changelog is still that log and was never cut below the position, and (b) everything that has happened since can
// still be read, in particular deletions.
//
// (a) A position alone proves little. A log loses its tail if all brokers lose power, if an unclean
// leader is elected, or if an older copy of its data is restored; then it grows past the same
// position again. So three things must be unchanged:
//
//   - The topic's ID. One ID is one topic forever (KIP-516), whatever its name.
//   - The name of the step whose checkpoint lies directly before the position. A name is used once (a process's random
//     ID and a number), and the checkpoint is the last record of its step. A leader appends a batch behind the records
//     that it has at that moment, and the batch never moves. So a log that shows the checkpoint at the same offset,
//     committed, still holds the records that preceded it when it was written, and the view has folded those. The
//     position stays directly behind the checkpoint even if claims and aborted steps were read behind it: a log that
//     was cut among those may have a step in their place. A view whose replay was interrupted behind a timer has no
//     name and is not reused. Neither is a view whose checkpoint has been compacted, because a later step followed and
//     min.compaction.lag.ms has passed: then a log that simply continued looks the same as a log that was restored and
//     compacted since.
//   - The leader epoch of the last record that was read (KIP-101, KIP-320). The log must still have records of that
//     epoch up to there. This covers a case that the name does not: a producer may retry a batch that was cut, and by
//     chance the batch lands at the same offset behind other records. The epoch alone would not be enough: epochs are
//     counted in the cluster's own data, so a restored cluster assigns the same epochs again. As long as a follower
//     continues, claims, markers and aborted records count as well: if the log is cut among them, there may be a step
//     in their place, and the follower is behind that place already.
//
// One case is left. A replay of a compacted log lacks records that later ones have superseded. If it is interrupted,
// and the log then loses those later ones to a replica that was not compacted as far, the view lacks records that the
// log holds again. That takes an interrupted replay and the loss of acknowledged records that are older than
// min.compaction.lag.ms. The same holds for a step that an interrupted replay has folded in part, if the log loses the
// rest of that step.
//
// (b) Kafka keeps the last record of each key, except for deletions: when the cleaner first meets one, it stamps the
// deletion with the time at which it may be dropped, delete.retention.ms later, as set at that moment (KIP-534). A
// deletion behind the position was written after the view was last in sync. So it is still there if everything was read
// within the lowest delete.retention.ms in force since then. The setting was noted when the view was in sync, and is
// read again when the view is opened and when it is used. Only half of it is allowed. The other half covers clocks that
// run unevenly, and a setting that was lowered and raised again unnoticed.
//
// Three intervals must be that short, see spans. The first one may be measured between two lives, so
// it is computed from brokers' times alone. The other two take whichever of this machine's two clocks
// shows more time: the monotonic clock stands still while the machine is suspended, and the wall clock
// can be set.
type evidence struct {
	view statestore.Meta // Position -1: there is no view
	step string          // name of the step that wrote the view's checkpoint; "": it has none

	log  sight
	past spans
	// keeps is the lowest delete.retention.ms of the changelog seen since the view was opened; 0: not
	// read yet.
	keeps time.Duration
}

// sight has the facts that the changelog shows.
type sight struct {
	id         [16]byte
	start, end int64
	// epochEnd is where the leader epoch of the last record that the view has read ends in the log;
	// -1: the log has no such epoch. It is valid once epochAsked is set.
	epochAsked bool
	epochEnd   int64
	read       int64 // offset behind that record
	// named is the step whose checkpoint is committed directly before the view's position; "": there
	// is none. It is valid once nameAsked is set.
	nameAsked bool
	named     string
}

// spans are the intervals in which deletions may have vanished unseen.
type spans struct {
	age    time.Duration // from when the view was last in sync until the log's end was first reached
	making time.Duration // for a view that began empty: from that begin until the log's end was first reached
	missed time.Duration // the longest time from asking for one end to asking for the next, or until now
	known  bool
}

// refuted returns why the view must not be reused; "" if nothing known so far speaks against it.
func (e *evidence) refuted() string {
	v := &e.view
	if v.Position >= 0 {
		if why := e.otherLog(); why != "" {
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
		return fmt.Sprintf("nothing was read for %s, longer than %s: %s", span.String(e.past.missed.Round(time.Second)),
			span.String(limit), gone)
	case age <= limit:
		return ""
	case v.Position < 0:
		return fmt.Sprintf("its first replay took %s, longer than %s: %s", span.String(age.Round(time.Second)),
			span.String(limit), gone)
	}
	if v.InSync.IsZero() {
		return "it has never been in sync: " + gone
	}
	return fmt.Sprintf("it was last in sync at %s, longer ago than %s: %s", v.InSync.UTC().Format(time.RFC3339),
		span.String(limit), gone)
}

// otherLog returns why the view is not a fold of this log; "" if nothing known so far says so.
func (e *evidence) otherLog() string {
	v, l := &e.view, &e.log
	switch {
	case v.Changelog != l.id:
		return "the changelog was recreated"
	case v.Position > l.end:
		return fmt.Sprintf("its position %d lies beyond the changelog's end %d", v.Position, l.end)
	case v.Position < l.start:
		return fmt.Sprintf("its position %d lies before the changelog's start %d", v.Position, l.start)
	case !v.Named || e.step == "":
		return fmt.Sprintf(
			"no step names its position %d: a replay was interrupted there, or an earlier version wrote it", v.Position)
	case l.epochAsked && l.epochEnd < l.read:
		return cutWhy(l.epochEnd, l.read)
	case l.nameAsked && l.named == "":
		return fmt.Sprintf("the checkpoint of its last step is no longer at offset %d of the changelog: it was "+
			"compacted, or the log was cut and has grown again", v.Position-1)
	case l.nameAsked && l.named != e.step:
		return fmt.Sprintf("the checkpoint at offset %d of the changelog is of step %s, not %s: the log was cut and "+
			"has grown again", v.Position-1, l.named, e.step)
	}
	return ""
}

// cutWhy says that a log was cut below the records that were read.
func cutWhy(end, read int64) string {
	if end < 0 {
		return fmt.Sprintf("the log was cut, or replaced: its leader does not know the leader epoch of the records "+
			"that were read below %d", read)
	}
	return fmt.Sprintf("the log was read up to %d, but it was cut at %d or before, and has grown again", read, end)
}
