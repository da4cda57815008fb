package calendars

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/internal/timer/calendar"
)

// Limits of a group's calendars, which a PUT must not exceed.
const (
	MaxCalendars  = 1000
	MaxTotalBytes = 8 << 20 // of the rules of all calendars, as text

	// A table takes a tenth more, because several instances may write at the same time.
	tableCalendars, tableBytes = MaxCalendars * 11 / 10, MaxTotalBytes / 10 * 11
	// maxDeleted is how many deletions a table remembers.
	maxDeleted = 10_000
)

// Calendar is one calendar.
type Calendar struct {
	*calendar.Exclusion
	Name    string
	Text    []byte // the rules, as they were put
	Changed int64  // time of its record, Unix ms
}

// Set is the calendars at one position of their log. It never changes.
type Set struct {
	byName  map[string]*Calendar
	deleted map[string]int64 // when those were deleted that are gone, Unix ms
	bytes   int              // of all Text
	offset  int64
}

// Get returns a calendar.
func (s *Set) Get(name string) (*Calendar, bool) {
	c, ok := s.byName[name]
	return c, ok
}

// Names returns the names of all calendars, in order.
func (s *Set) Names() []string { return slices.Sorted(maps.Keys(s.byName)) }

// Len returns how many calendars there are.
func (s *Set) Len() int { return len(s.byName) }

// Changed returns when a calendar was last put or deleted, in Unix milliseconds; math.MinInt64 if neither is known. A
// deletion is known to the processes that have read it.
func (s *Set) Changed(name string) int64 {
	if c, ok := s.byName[name]; ok {
		return c.Changed
	}
	if at, ok := s.deleted[name]; ok {
		return at
	}
	return math.MinInt64
}

// Calendar implements calendar.Calendars.
func (s *Set) Calendar(name string) (rules *calendar.Exclusion, changed int64) {
	if c, ok := s.byName[name]; ok {
		rules = c.Exclusion
	}
	return rules, s.Changed(name)
}

var _ calendar.Calendars = (*Set)(nil)

// Offset is one past the last record of the log that was read.
func (s *Set) Offset() int64 { return s.offset }

// Takes returns nil if a calendar may be put, otherwise the reason: one sentence.
func (s *Set) Takes(name string, text []byte) error {
	if err := CheckName(name); err != nil {
		return err
	}
	if _, err := calendar.ParseRules(text); err != nil {
		return err
	}
	return s.room(name, text, MaxCalendars, MaxTotalBytes)
}

func (s *Set) room(name string, text []byte, most, bytes int) error {
	old, known := s.byName[name]
	switch {
	case !known && len(s.byName) >= most:
		return fmt.Errorf("there are %d calendars, and may be %d: delete one", len(s.byName), most)
	case known && len(text) <= len(old.Text):
		return nil
	case known && s.bytes-len(old.Text)+len(text) > bytes, !known && s.bytes+len(text) > bytes:
		return fmt.Errorf("all calendars together have %d bytes of rules, and may have %d", s.bytes, bytes)
	}
	return nil
}

// CheckName returns an error if a calendar cannot have a name.
func CheckName(name string) error {
	switch {
	case name == "", len(name) > waterclock.MaxCalendarNameBytes:
		return fmt.Errorf("the name has %d characters, needs 1 to %d", len(name), waterclock.MaxCalendarNameBytes)
	case !waterclock.ValidCalendarName(name):
		return fmt.Errorf("the name is %.80q, needs letters, digits, dots, _ and - only", name)
	case name == ".", name == "..":
		return errors.New("the name must not be . or .., which paths of URLs cannot have")
	}
	return nil
}

// clone returns a copy that may be changed.
func (s *Set) clone() *Set {
	c := *s
	c.byName, c.deleted = maps.Clone(s.byName), maps.Clone(s.deleted)
	return &c
}

func newSet() *Set { return &Set{byName: make(map[string]*Calendar), deleted: make(map[string]int64)} }

// apply adds a record to a set that may be changed. An error says why the record is ignored.
func (s *Set) apply(name string, text []byte, at int64) error {
	if err := CheckName(name); err != nil {
		return err
	}
	if text == nil {
		s.remove(name, at)
		return nil
	}
	rules, err := calendar.ParseRules(text)
	if err != nil {
		return err
	}
	if err := s.room(name, text, tableCalendars, tableBytes); err != nil {
		return err
	}
	if old, ok := s.byName[name]; ok {
		s.bytes -= len(old.Text)
	}
	s.bytes += len(text)
	s.byName[name] = &Calendar{Exclusion: rules, Name: name, Text: text, Changed: at}
	delete(s.deleted, name)
	return nil
}

func (s *Set) remove(name string, at int64) {
	if old, ok := s.byName[name]; ok {
		s.bytes -= len(old.Text)
		delete(s.byName, name)
	}
	if len(s.deleted) < maxDeleted {
		s.deleted[name] = at
	}
}

// since remembers the calendars of an older set: those that are gone count as deleted at the given time.
func (s *Set) since(old *Set, now int64) {
	for name := range old.byName {
		if s.Changed(name) == math.MinInt64 {
			s.remove(name, now)
		}
	}
	for name, at := range old.deleted {
		if s.Changed(name) == math.MinInt64 {
			s.remove(name, at)
		}
	}
}
