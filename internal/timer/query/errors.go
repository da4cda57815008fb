package query

import (
	"errors"
	"time"
)

var (
	// ErrMoved says that this process does not own the partition any more, or is handing it
	// over. It cannot say what became of a request. The new owner knows what is pending.
	ErrMoved = errors.New("partition is on its way to another instance")

	// ErrForgotten says that the decision on a request is not remembered: it was made before anybody
	// watched, or later ones have taken its room.
	ErrForgotten = errors.New("the decision is not remembered")
)

// ErrInDoubt says that this process did not hear in time how the last step of the partition ended, which consumers may
// have seen.
var ErrInDoubt = errors.New("how the last step ended is not known yet")

// ErrBusy says that too much is changing to show one consistent state.
var ErrBusy = errors.New("more is changing than a question can follow: ask again")

// NotLiveError says that the partition cannot answer yet, or not any more: it is being
// acquired, or has failed.
type NotLiveError struct {
	State  string
	Since  time.Time // of State; zero: not known
	Reason string    // a sentence; empty: none is known
	Failed bool      // it stays so until an operator acts
}

func (n *NotLiveError) Error() string {
	text := "partition is not live: " + n.State
	if !n.Since.IsZero() {
		text += " since " + n.Since.UTC().Format(time.RFC3339)
	}
	if n.Reason != "" {
		text += ": " + n.Reason
	}
	return text
}

// Again reports whether the same question may be answered soon, by this instance or
// another one.
func Again(err error) bool {
	var notLive *NotLiveError
	return errors.Is(err, ErrMoved) || errors.Is(err, ErrBusy) || errors.Is(err, ErrInDoubt) || errors.As(err, &notLive)
}
