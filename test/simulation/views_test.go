package simulation

import (
	"errors"
	"log/slog"

	"github.com/waterclock/waterclock/internal/audit/observe"
	"github.com/waterclock/waterclock/internal/kafka/topics"
	"github.com/waterclock/waterclock/internal/node/ops"
	"github.com/waterclock/waterclock/internal/partition/planner"
	"github.com/waterclock/waterclock/statestore"
	"github.com/waterclock/waterclock/test/witness"
)

// keepDisk keeps what a crash has left, to be looked at in the end.
func (w *world) keepDisk(d disk) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.disks = append(w.disks, d)
}

// views are what the stores of instances hold that have ended.
func (w *world) views() (views []witness.StoreContents) {
	for _, d := range w.disks {
		s, err := statestore.Open(statestore.Options{
			Dir: ops.StoreDir(d.of.cfg.DataDir), FS: d.fs, Logger: slog.New(slog.DiscardHandler),
			OnFatal: func(err error) { w.refuse("the store of %s: %v", d.of.name, err) },
		})
		if err != nil {
			w.refuse("open the store of %s: %v", d.of.name, err)
			continue
		}
		found, err := viewsOf(s, d.of.name)
		if err = errors.Join(err, s.Close()); err != nil {
			w.refuse("read the store of %s: %v", d.of.name, err)
		}
		views = append(views, found...)
	}
	return views
}

func viewsOf(s *statestore.Store, of string) (views []witness.StoreContents, err error) {
	ids, err := s.Partitions()
	if err != nil {
		return nil, err
	}
	for _, id := range ids {
		k := s.Partition(id).Acquire()
		meta, err := k.Meta()
		if err != nil {
			return nil, err
		}
		v := witness.StoreContents{Instance: of, Requests: requests, Partition: id.Partition, Position: meta.Position}
		rows, err := k.View()
		if err != nil {
			return nil, err
		}
		err = rows.Due(planner.Lowest, planner.Highest, false, func(r *statestore.Row) (bool, error) {
			t, err := r.Timer()
			if err == nil {
				v.Timers = append(v.Timers, *observe.Timer(requests, topics.Changelog(requests), id.Partition, t))
			}
			return true, err
		})
		if err = errors.Join(err, rows.Close()); err != nil {
			return nil, err
		}
		views = append(views, v)
	}
	return views, nil
}
