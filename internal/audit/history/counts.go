package history

import (
	"errors"
	"fmt"
)

// ErrInexact says that emissions were lost, duplicated, early or altered.
var ErrInexact = errors.New("emissions are not exact")

// Counts are the fates of timers. The fields after Received must be 0.
type Counts struct {
	Scheduled  int `json:"scheduled"`
	Received   int `json:"received"` // timers whose emission came at least once
	Lost       int `json:"lost"`
	Duplicated int `json:"duplicated"`
	Early      int `json:"early"`   // by timestamp or by receipt
	Altered    int `json:"altered"` // another due time, key or value, or a timer that was never scheduled
}

// Wrong is how many went wrong.
func (c Counts) Wrong() int { return c.Lost + c.Duplicated + c.Early + c.Altered }

// Err returns an [ErrInexact] that names the measurement, or nil if nothing is wrong.
func (c Counts) Err(what string) error {
	if c.Wrong() == 0 {
		return nil
	}
	return fmt.Errorf("%s: %d lost, %d duplicated, %d early, %d altered, of %d: %w",
		what, c.Lost, c.Duplicated, c.Early, c.Altered, c.Scheduled, ErrInexact)
}
