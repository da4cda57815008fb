package replay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/kafka/partlog"
	"github.com/waterclock/waterclock/internal/kafka/wire"
	"github.com/waterclock/waterclock/internal/kit/beats"
	"github.com/waterclock/waterclock/internal/timer"
)

const (
	// flushBytes bounds a fold between two flushes unless Room is set: the bytes of keys and values, and recordBytes
	// more for each record, about the cost of holding one. Batches that large go into the store as sorted tables.
	flushBytes, recordBytes = 64 << 20, 256
	// A fetch may return a fetchPart-th of that, and its records may take a pagePart-th. Fetches larger than fetchMost
	// save nothing.
	fetchPart, pagePart, fetchMost = 16, 8, 4 << 20

	// restAfter is how long a replay that does not move keeps its slot.
	restAfter = time.Second
	// partRest is the longest rest after a part: see Replay.Part.
	partRest = 2 * time.Second
)

// Fold applies a changelog, in log order. It may keep the byte slices that it is given.
type Fold interface {
	// Hold is called before the first record of a fold. Nothing is fetched before it returns, so it may wait for a
	// slot.
	Hold(ctx context.Context) error
	// Put makes t, whose bytes are value, the pending timer of id.
	Put(id, value []byte, t *timer.Timer) error
	// Delete makes id have no pending timer. Perhaps it had none.
	Delete(id []byte) error
	// Checkpoint gives the value of the last checkpoint record, with the group and owner of the last writer, which
	// may have written a claim since.
	Checkpoint(raw []byte) error
	// Flush says that the store now is the fold of the changelog below at. If only claims have followed the last named
	// place, at is that place.
	Flush(at Point) error
	// Rest is called after a Flush or an error. Nothing comes until the next Hold.
	Rest()
}

// Point is a position in a changelog with its identity. An offset is not enough: it exists in other logs too, and in
// the same log after that was cut and has grown again.
type Point struct {
	Position int64 // everything below it is folded
	// Named says that the record directly before Position is the last checkpoint: its step names the
	// place. The fold may include more of the log, but only claims, which change no timer.
	Named bool
	// Epoch is the leader epoch of the last record that was read, claims not counted, and Read is the offset behind
	// that record. Epoch 0: not known.
	Epoch partlog.Epoch
	Read  int64
}

// Replay folds a changelog partition. It is used by one goroutine.
type Replay struct {
	// Claimed, if not nil, is called with each claim that is folded.
	Claimed func(wire.Claim)
	// Room is the memory of a fold between two flushes, in bytes; 0 is 64 MiB.
	Room int
	// Progress, if not nil, is called with the position and the log's end after every fetch, and a few times a second
	// in between. If the position stays below the end, an open transaction, a silent leader or a high watermark that
	// lags holds it up.
	Progress func(position, end int64)
	// Part, if not 0, is how long the replay works before it gives its slot back for as long as it has worked, at most
	// partRest. Then it waits for a slot again, behind those in the queue.
	Part time.Duration
	// Between, if not nil, is called after such a rest, without a slot. It may wait; its error ends To, and the replay
	// can go on.
	Between func(ctx context.Context) error

	r    *partlog.Reader
	fold Fold
	held time.Time // when Hold has returned; zero between Rest and the next Hold

	last *wire.Checkpoint // nil: there is none
	at   Point            // behind the last record that is not a claim
	// named is called with the step found directly before at; nil once that is done, or if it is not needed.
	named func(step string) error

	// bytes is the size of the fold since the last flush, records included; 0: nothing.
	bytes int
	// broken: the fold lacks records before the position.
	broken bool
}

// NewReplay returns a replay of the changelog partition that r reads, from r's position on.
func NewReplay(r *partlog.Reader, fold Fold) *Replay { return &Replay{r: r, fold: fold} }

// Continue makes the replay continue a fold that ends at a place. last is the fold's last checkpoint, nil if it has
// none. If the place is named, the replay first reads the record before it again, and calls named with the step of that
// checkpoint, "" if no checkpoint is committed there any more. If named returns an error, To returns it and folds
// nothing.
func (r *Replay) Continue(last *wire.Checkpoint, at Point, named func(step string) error) {
	if last != nil {
		r.last = new(*last)
	}
	r.at = at
	r.r.SetPosition(at.Position)
	if at.Named {
		r.named = named
		r.r.SetPosition(at.Position - 1)
	}
}

// Read returns the leader epoch of the last record that was read, and the offset behind it. Claims, markers and aborted
// records count if this replay has read them. If the log is cut among those and grows again, a step may take their
// place, and this replay would not read it: it is behind that place already.
func (r *Replay) Read() (partlog.Epoch, int64) {
	if epoch, behind := r.r.Last(); epoch != 0 && behind > r.at.Read {
		return epoch, behind
	}
	return r.at.Epoch, r.at.Read
}

// Position is the offset up to which the changelog has been folded.
func (r *Replay) Position() int64 { return r.r.Position() }

// Last is the last checkpoint, with the group and the owner of the last writer; nil if there is none.
func (r *Replay) Last() *wire.Checkpoint {
	if r.last == nil {
		return nil
	}
	return new(*r.last)
}

// To folds the committed records up to the offset end, and perhaps beyond it. With the high watermark for end it waits
// for the transactions that are open there. The log must have reached end before; if it was cut below that, To returns
// partlog.ErrLogCut.
//
// It flushes when Room is used up, when it rests, when it fails, and at the end. So an interrupted replay is continued,
// not repeated: by this Replay, unless it is Broken, or by another one.
//
// A record of a later version is ErrNewerFormat, one that is damaged ErrCorrupt; both name topic, partition and offset.
// Other errors are those of the reader and of the fold.
func (r *Replay) To(ctx context.Context, end int64) error {
	err := r.to(ctx, end)
	if err != nil && !r.broken { // the pages so far are folded as a whole
		err = errors.Join(err, r.flush(r.r.Position()))
	}
	r.letGo()
	if err != nil {
		return fmt.Errorf("replay %v: %w", r.r.Log(), err)
	}
	return nil
}

// Broken reports that the replay must not go on, because it failed within a page, or could not flush.
func (r *Replay) Broken() bool { return r.broken }

func (r *Replay) room() int { return cmp.Or(r.Room, flushBytes) }

func (r *Replay) to(ctx context.Context, end int64) error {
	r.r.SetCompacted(true)
	r.r.SetMaxBytes(int32(min(fetchMost, r.room()/fetchPart)))
	r.r.SetRoom(int64(r.room() / pagePart))
	r.r.SetGate(r.hold)
	for page, err := range r.r.To(ctx, end) {
		if err != nil {
			return err
		}
		err = r.page(page.Records)
		if err == nil && r.named != nil && r.r.Position() >= r.at.Position {
			err = r.foundNamed(nil)
		}
		if err != nil {
			r.broken = true
			return err
		}
		if r.Progress != nil {
			r.Progress(r.r.Position(), max(page.HighWatermark, end))
		}
		if page.Idle == 0 {
			err = r.endPart(ctx, end)
		} else if page.Idle > restAfter {
			err = r.rest()
		}
		if err != nil {
			return err
		}
	}
	return r.flush(r.r.Position())
}

// hold acquires a slot, once there is something to fetch.
func (r *Replay) hold(ctx context.Context) (held bool, err error) {
	if !r.held.IsZero() {
		return true, nil
	}
	if more, err := r.r.More(ctx); err != nil || !more {
		return false, err
	}
	if err := r.fold.Hold(ctx); err != nil {
		return false, err
	}
	r.held = time.Now()
	return true, nil
}

// endPart rests if a part is over and records are left.
func (r *Replay) endPart(ctx context.Context, end int64) error {
	if r.Part == 0 || time.Since(r.held) < r.Part || r.r.Position() >= end {
		return nil
	}
	began := r.held
	if err := r.rest(); err != nil {
		return err
	}
	if !beats.Sleep(ctx, min(time.Since(began), partRest)) {
		return ctx.Err()
	}
	if r.Between == nil {
		return nil
	}
	return r.Between(ctx)
}

// rest gives back the slot, which others may need. It drops what was fetched and not read, and forgets the leader.
func (r *Replay) rest() error {
	if r.held.IsZero() {
		return nil
	}
	if err := r.flush(r.r.Position()); err != nil {
		return err
	}
	r.letGo()
	r.r.LookAgain()
	return nil
}

func (r *Replay) letGo() {
	if !r.held.IsZero() {
		r.held = time.Time{}
		r.fold.Rest()
	}
}

func (r *Replay) page(records []*kgo.Record) error {
	for _, rec := range records {
		if r.named != nil {
			if err := r.foundNamed(rec); err != nil {
				return err
			}
			continue // it was folded before
		}
		if err := r.record(rec); err != nil {
			return at(rec, err)
		}
		if r.bytes += len(rec.Key) + len(rec.Value) + recordBytes; r.bytes < r.room() {
			continue
		}
		if err := r.flush(rec.Offset + 1); err != nil {
			return err
		}
	}
	return nil
}

func (r *Replay) flush(position int64) error {
	if r.bytes == 0 {
		return nil
	}
	r.bytes = 0
	at := r.at
	if !at.Named {
		at.Position = position
	}
	err := r.fold.Flush(at)
	r.broken = r.broken || err != nil
	return err
}

// foundNamed reports the step at the last folded checkpoint. rec is the first record from that offset on, or nil.
func (r *Replay) foundNamed(rec *kgo.Record) error {
	step := ""
	if rec != nil && rec.Offset == r.at.Position-1 {
		if kind, _, err := wire.ParseKey(rec.Key); err == nil && kind == wire.KindCheckpoint {
			c, _ := wire.DecodeCheckpoint(rec.Value)
			step = c.Step
		}
	}
	named := r.named
	r.named = nil
	return named(step)
}

func (r *Replay) record(rec *kgo.Record) error {
	kind, id, err := wire.ParseKey(rec.Key)
	if err != nil {
		return err
	}
	switch kind {
	case wire.KindTimer:
		r.reached(rec, false)
		return r.timer(id, rec.Value)
	case wire.KindCheckpoint:
		r.reached(rec, true)
		return r.checkpoint(rec.Value)
	default:
		return r.claim(rec)
	}
}

func (r *Replay) reached(rec *kgo.Record, named bool) {
	r.at = Point{Position: rec.Offset + 1, Named: named, Epoch: partlog.EpochOf(rec.LeaderEpoch), Read: rec.Offset + 1}
}

// claim notes the last writer. It is kept with the checkpoint, so a later replay that begins behind the claim knows it
// too.
func (r *Replay) claim(rec *kgo.Record) error {
	c, err := wire.DecodeClaim(rec.Value)
	if err != nil {
		return err
	}
	c.Appended, c.Leader = rec.Timestamp.UnixMilli(), partlog.EpochOf(rec.LeaderEpoch)
	if r.Claimed != nil {
		r.Claimed(c)
	}
	if r.last == nil || r.last.Group == c.Group && r.last.Owner == c.Owner {
		return nil
	}
	r.last.Group, r.last.Owner = c.Group, c.Owner
	return r.fold.Checkpoint(r.last.AppendTo(nil))
}

func (r *Replay) timer(id, value []byte) error {
	if value == nil {
		return r.fold.Delete(id)
	}
	t, err := timer.Decode(value)
	switch {
	case errors.Is(err, timer.ErrNewerFormat):
		return fmt.Errorf("%w: %w", wire.ErrNewerFormat, err)
	case err != nil:
		return fmt.Errorf("%w: %w", wire.ErrCorrupt, err)
	case string(t.ID) != string(id):
		return fmt.Errorf("timer %q under the key of %q: %w", t.ID, id, wire.ErrCorrupt)
	}
	return r.fold.Put(id, value, t)
}

func (r *Replay) checkpoint(value []byte) error {
	c, err := wire.DecodeCheckpoint(value)
	if err != nil {
		return err
	}
	r.last = &c
	return r.fold.Checkpoint(value)
}

// at names the record in an error.
func at(rec *kgo.Record, err error) error {
	return fmt.Errorf("record %v: %w", wire.SourceOf(rec), err)
}
