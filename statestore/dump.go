package statestore

import (
	"bufio"
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"

	"github.com/waterclock/waterclock/internal/timer"
)

// Dump writes every row of the store to w in key order, one JSON object (dumpRow) a line. A row that makes no sense
// becomes a line with an error, as does the point from which a partition cannot be read. Dump returns these errors
// too; they wrap ErrCorrupt or ErrNewerFormat.
//
// payloads adds users' data: values, headers and keys of emissions, and the bytes of checkpoints. Timer IDs are always
// there.
func (s *Store) Dump(ctx context.Context, w io.Writer, payloads bool) error {
	out := bufio.NewWriter(w)
	d := &dumper{payloads: payloads, json: json.NewEncoder(out)}
	d.json.SetEscapeHTML(false)
	err := eachPartition(ctx, s, func(id PartitionID, met error) error { return d.dump(ctx, s, id, met) })
	return errors.Join(err, d.failed, out.Flush())
}

func (d *dumper) dump(ctx context.Context, s *Store, id PartitionID, met error) error {
	if err := s.enter(); err != nil {
		return err
	}
	defer s.leave()
	d.partition, d.faults = id.String(), nil
	p := id.prefix()
	next, n := p.next(), 0
	err := eachRow(s.db, p[:], next[:], func(key, row []byte) (bool, error) {
		if d.row(key, row); d.failed == nil && n%1000 == 0 {
			return true, ctx.Err()
		}
		n++
		return true, d.failed
	})
	if d.failed != nil {
		return d.faults // Dump returns why it failed
	}
	if err = errors.Join(met, err); err != nil {
		err = fmt.Errorf("dump partition %s: %w", id, corrupt(err))
		d.write(&dumpRow{Error: err.Error()})
	}
	return errors.Join(d.faults, err)
}

// dumpRow is one line. Fields that a row does not have are left out. Times are Unix milliseconds, bytes are base64.
type dumpRow struct {
	Partition string `json:"partition"` // topic UUID/number
	Row       string `json:"row,omitempty"`
	Key       string `json:"row_key,omitempty"` // in hex, of a row with an error
	Error     string `json:"error,omitempty"`

	// In rows timer, parked and id. An ID that is not UTF-8 is in IDBytes.
	ID      *string `json:"id,omitempty"`
	IDBytes []byte  `json:"id_base64,omitempty"`
	Due     *int64  `json:"due,omitempty"`
	Offset  *int64  `json:"offset,omitempty"`
	// Target is the number of the unhealthy target, in rows parked and target.
	Target uint32 `json:"target,omitempty"`

	// In rows timer and parked.
	Occurrence  int64        `json:"occurrence,omitempty"`
	Paused      bool         `json:"paused,omitempty"`
	Triggered   bool         `json:"triggered,omitempty"`
	Recurrence  *dumpRecurs  `json:"recurrence,omitempty"`
	MaxLate     *int64       `json:"max_late_ms,omitempty"`
	Topic       string       `json:"topic,omitempty"`
	ToPartition *int32       `json:"to_partition,omitempty"` // if it is explicit
	Headers     *int         `json:"headers,omitempty"`
	ValueBytes  *int         `json:"value_bytes,omitempty"` // none: a null value
	EmitKey     []byte       `json:"key_base64,omitempty"`
	EmitHeaders []dumpHeader `json:"header_list,omitempty"`
	EmitValue   []byte       `json:"value_base64,omitempty"`

	// Of row target.
	Name   string `json:"name,omitempty"`
	Parked *int64 `json:"parked,omitempty"` // of meta too

	// In row meta.
	Format    byte   `json:"format,omitempty"`
	Position  *int64 `json:"position,omitempty"`
	Changelog string `json:"changelog,omitempty"`
	Pending   *int64 `json:"pending,omitempty"`
	// Misplaced is counted for that many Partitions; absent if it is not.
	Partitions int32  `json:"partitions,omitempty"`
	Misplaced  *int64 `json:"misplaced,omitempty"`
	InSync     *int64 `json:"in_sync,omitempty"`
	// Named, Epoch (one more than the leader's) and Read: see Mark.
	Named bool  `json:"named,omitempty"`
	Epoch int32 `json:"epoch,omitempty"`
	Read  int64 `json:"read,omitempty"`
	Keeps int64 `json:"keeps_ms,omitempty"`

	LowDue    *int64 `json:"low_due,omitempty"` // of target too
	LowOffset *int64 `json:"low_offset,omitempty"`

	// Of row checkpoint.
	Bytes      int    `json:"bytes,omitempty"`
	Checkpoint []byte `json:"checkpoint_base64,omitempty"`
}

type dumpHeader struct {
	Key   string `json:"key"`
	Value []byte `json:"value_base64"` // null for a null value
}

// dumpRecurs says how a timer recurs.
type dumpRecurs struct {
	Scheduled int64  `json:"scheduled"` // the occurrence, without jitter
	Every     int64  `json:"every_ms,omitempty"`
	Cron      string `json:"cron,omitempty"`
	Period    string `json:"period,omitempty"`
	Zone      string `json:"zone,omitempty"`
	Start     *int64 `json:"start,omitempty"`
	Until     *int64 `json:"until,omitempty"`
	Count     int64  `json:"count,omitempty"`
	Jitter    int64  `json:"jitter_ms,omitempty"`
	CatchUp   string `json:"catch_up"`
	NotOn     string `json:"not_on,omitempty"`
	Shift     string `json:"shift,omitempty"`
	Since     int64  `json:"since,omitempty"`
	Moved     int64  `json:"moved_ms,omitempty"`
}

// recurs sets the fields that only some timers have.
func (d *dumpRow) recurs(t *timer.Timer) {
	if t.TooLate > 0 {
		d.MaxLate = new(t.TooLate - 1)
	}
	c := t.Recurrence
	if c == nil {
		return
	}
	d.Recurrence = &dumpRecurs{Scheduled: t.Scheduled(), Every: c.Every, Cron: c.Cron, Zone: c.Zone, Count: c.Count,
		Period: c.Period.String(), Jitter: c.Jitter, CatchUp: c.CatchUp.String()}
	if c.NotOn != "" {
		d.Recurrence.NotOn, d.Recurrence.Shift = c.NotOn, c.Shift.String()
		d.Recurrence.Since, d.Recurrence.Moved = c.Since, c.Moved
	}
	if c.Start.Set {
		d.Recurrence.Start = &c.Start.At
	}
	if c.Until != timer.NoUntil {
		d.Recurrence.Until = &c.Until
	}
}

// dumper writes the rows of one partition after the other.
type dumper struct {
	payloads  bool
	json      *json.Encoder
	partition string
	faults    error // of the partition, joined
	count     int
	failed    error // the error of the writer
}

// maxFaults bounds how many errors of rows Dump returns. Each has its line in any case.
const maxFaults = 100

func (d *dumper) write(r *dumpRow) {
	r.Partition = d.partition
	d.failed = errors.Join(d.failed, d.json.Encode(r))
}

func (d *dumper) row(key, row []byte) {
	r := &dumpRow{}
	if err := d.fill(r, key, row); err != nil {
		r = &dumpRow{Row: r.Row, Key: hex.EncodeToString(key), Error: err.Error()}
		if d.count++; d.count <= maxFaults {
			d.faults = errors.Join(d.faults, fmt.Errorf("dump partition %s: key %x: %w", d.partition, key, err))
		}
	}
	d.write(r)
}

func (d *dumper) fill(r *dumpRow, key, row []byte) error {
	if len(key) <= kindAt {
		return ErrCorrupt
	}
	switch rest := key[idAt:]; key[kindAt] {
	case kindCheckpoint:
		r.Row, r.Bytes = "checkpoint", len(row)
		if d.payloads {
			r.Checkpoint = bytes.Clone(row)
		}
	case kindDue:
		r.Row = "timer"
		return d.timer(r, key, row)
	case kindParked:
		r.Row = "parked"
		return d.timer(r, key, row)
	case kindID:
		r.Row = "id"
		at, err := decodeLocation(row)
		if err != nil {
			return fmt.Errorf("%w: %w", err, ErrCorrupt)
		}
		r.id(rest)
		r.Due, r.Offset, r.Target = &at.ref.Due, &at.ref.Offset, at.target
	case kindMeta:
		r.Row = "meta"
		return r.meta(row)
	case kindTarget:
		r.Row = "target"
		t, err := decodeTarget(rest, row)
		if err != nil {
			return err
		}
		r.Target, r.Name, r.Parked, r.LowDue, r.LowOffset = t.number, t.name, &t.count, &t.low.Due, &t.low.Offset
	default:
		return fmt.Errorf("unknown kind of row: %w", ErrCorrupt)
	}
	return nil
}

func (d *dumpRow) id(id []byte) {
	if utf8.Valid(id) {
		d.ID = new(string(id))
		return
	}
	d.IDBytes = bytes.Clone(id)
}

func (d *dumpRow) meta(row []byte) error {
	m, err := decodeMeta(row)
	if err != nil {
		return err
	}
	d.Format = row[0]
	d.Position, d.Pending, d.Parked = &m.Position, &m.Pending, &m.Parked
	d.Changelog = hex.EncodeToString(m.Changelog[:])
	d.LowDue, d.LowOffset = &m.low.Due, &m.low.Offset
	if m.Partitions != 0 {
		d.Partitions, d.Misplaced = m.Partitions, &m.Misplaced
	}
	d.Named, d.Epoch, d.Read, d.Keeps = m.Named, m.Epoch, m.Read, m.Keeps.Milliseconds()
	if !m.InSync.IsZero() {
		d.InSync = new(m.InSync.UnixMilli())
	}
	return nil
}

func (d *dumper) timer(r *dumpRow, key, row []byte) error {
	t, at, err := rowTimer(key, row)
	if err != nil {
		return err
	}
	r.id(t.ID)
	r.Target = at.target
	r.Due, r.Offset, r.Occurrence, r.Topic = &t.Due, &t.Offset, t.Occurrence, t.Target.Topic
	r.Paused, r.Triggered = t.IsPaused(), t.IsTriggered()
	r.recurs(t)
	if t.Target.Partition != timer.AnyPartition {
		r.ToPartition = &t.Target.Partition
	}
	r.Headers = new(len(t.Headers))
	if t.Value != nil {
		r.ValueBytes = new(len(t.Value))
	}
	if d.payloads {
		r.EmitKey, r.EmitValue = t.Target.Key, t.Value
		for _, h := range t.Headers {
			r.EmitHeaders = append(r.EmitHeaders, dumpHeader{h.Key, h.Value})
		}
	}
	return nil
}
