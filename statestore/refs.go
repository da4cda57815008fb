package statestore

import (
	"errors"
	"fmt"

	"github.com/waterclock/waterclock/internal/timer"
)

// Refs calls fn with the places from <= Ref < to of the timers that are not parked, in order, until fn returns false.
// It reads no values.
func (v *View) Refs(from, to timer.Ref, fn func(timer.Ref) (more bool)) error {
	rows, err := v.due(from, to)
	if err != nil {
		return fmt.Errorf("view partition %s: %w", v.k.p.id, err)
	}
	for rows.ok && err == nil && fn(rows.row.Ref) {
		err = rows.next()
	}
	if rows.it != nil {
		err = errors.Join(err, rows.it.Close())
	}
	if err != nil {
		return fmt.Errorf("view partition %s: %w", v.k.p.id, err)
	}
	return nil
}
