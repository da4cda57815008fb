package config

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"github.com/waterclock/waterclock/internal/kit/suggest"
)

// ErrInvalid is wrapped by every error about the configuration.
var ErrInvalid = errors.New("invalid configuration")

// Problem is one rejected setting. It wraps ErrInvalid.
type Problem struct {
	Setting string // its name
	Source  string // variable or file:line that it comes from, if known
	Found   string // its value; empty if it is not set
	Need    string // the requirement, to follow the word "needs"
}

// Error returns the problem in one line.
func (p *Problem) Error() string {
	var b strings.Builder
	b.WriteString(p.Setting)
	if p.Found != "" {
		fmt.Fprintf(&b, " is %q,", p.Found)
	}
	b.WriteString(" needs " + p.Need)
	if p.Source != "" {
		fmt.Fprintf(&b, " (%s)", p.Source)
	}
	return b.String()
}

// Unwrap makes errors.Is(err, ErrInvalid) true.
func (p *Problem) Unwrap() error { return ErrInvalid }

// Invalid returns err, which then wraps ErrInvalid too: trying again will not help.
func Invalid(err error) error { return &invalidError{err} }

type invalidError struct{ error }

// Unwrap is for errors.Is and errors.As.
func (i *invalidError) Unwrap() []error { return []error{i.error, ErrInvalid} }

// Pathless strips the path from a file error, for messages that name it already.
func Pathless(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err
	}
	return err
}

// Replaced names the successor of a setting of earlier versions; "" if it is no such setting.
func Replaced(setting string) string {
	switch setting {
	case "wheel-memory", "queue-memory", "store-memory":
		return "it is gone: memory says how much the process uses in all"
	}
	return ""
}

// hint names the successor of a setting, or proposes the nearest known name, if there is one.
func hint(found, prefix string, known []string) string {
	setting := found
	if prefix != "" {
		setting = settingOf(found)
	}
	if why := Replaced(setting); why != "" {
		return "; " + why
	}
	return suggest.Hint(found, prefix, known)
}

func sortedKeys[V any](m map[string]V) []string {
	return slices.Sorted(maps.Keys(m))
}
