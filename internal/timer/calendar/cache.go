package calendar

import (
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/waterclock/waterclock/internal/timer"
)

// maxSchedules bounds the schedules in a Cache, and maxExpressions the bytes of their expressions and zones: an
// expression may have a KiB. Each schedule takes some 200 bytes and its expression. There are some 600 zones.
const (
	maxSchedules   = 4096
	maxExpressions = 512 << 10
	maxZones       = 1024
	// zoneAgain is the time before an unknown zone is looked up again.
	zoneAgain = time.Second
)

// Cache remembers schedules and zones, so that timers with the same expression share them. Any number of goroutines may
// use it; its zero value is ready. The lock is not held while the file of a zone is read.
type Cache struct {
	// Calendars has the calendars that timers name. It is set before the Cache is used. nil means that they are not
	// known: each name has one, which excludes nothing.
	Calendars Calendars

	mu sync.Mutex // guards the following fields
	// now has the schedules that were used recently, before those that were used earlier. When now
	// reaches half of maxSchedules, or of maxExpressions, it becomes before.
	now, before map[key]*Schedule
	bytes       int // of the expressions and zones in now
	zones       map[string]zoneFound
}

// zoneFound is the result of looking up a zone.
type zoneFound struct {
	loc *time.Location // nil if there were no rules
	at  time.Time
}

type key struct{ expression, zone string }

// Recurrence returns a timer's recurrence, ready for computation. The error wraps ErrUnknownZone if this machine does
// not know the zone, although the machine that accepted the timer did. It describes the problem but does not name the
// timer.
func (c *Cache) Recurrence(timers *timer.Recurrence) (Recurrence, error) {
	r := Recurrence{plain: plain{Recurrence: timers}, excluded: excludedBy(c.Calendars, timers)}
	var err error
	switch {
	case timers.Cron != "":
		r.schedule, err = c.Schedule(timers.Cron, timers.Zone)
	case timers.Period != timer.Period{}:
		var loc *time.Location
		loc, err = c.load(timers.Zone)
		r.period = &periodic{timers.Period, timers.Start, zone{loc}}
	}
	return r, err
}

// Has reports whether there is a calendar with that name.
func (c *Cache) Has(name string) bool {
	if c.Calendars == nil {
		return true
	}
	e, _ := c.Calendars.Calendar(name)
	return e != nil
}

// Schedule returns the schedule of an expression in a zone, which is given by its IANA name; ""
// is UTC. Errors are those of Parse and LoadZone.
func (c *Cache) Schedule(expression, zone string) (*Schedule, error) {
	if s := c.cached(expression, zone); s != nil {
		return s, nil
	}
	e, err := Parse(expression)
	if err != nil {
		return nil, err
	}
	loc, err := c.load(zone)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.remember(key{strings.Clone(expression), strings.Clone(zone)}, e.In(loc)), nil
}

// cached returns the cached schedule, or nil.
func (c *Cache) cached(expression, zone string) *Schedule {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := key{expression, zone}
	if s := c.now[k]; s != nil {
		return s
	}
	if s := c.before[k]; s != nil {
		return c.remember(key{strings.Clone(expression), strings.Clone(zone)}, s)
	}
	return nil
}

// remember notes that a schedule was used, and returns it. The lock is held.
func (c *Cache) remember(k key, s *Schedule) *Schedule {
	if first := c.now[k]; first != nil { // another goroutine has parsed it first
		return first
	}
	size := len(k.expression) + len(k.zone)
	if c.now == nil || len(c.now) >= maxSchedules/2 || c.bytes+size > maxExpressions/2 {
		c.now, c.before, c.bytes = make(map[key]*Schedule), c.now, 0
	}
	c.now[k] = s
	c.bytes += size
	return s
}

// Len returns the number of cached schedules.
func (c *Cache) Len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.now) + len(c.before)
}

// load returns the rules of a zone. It reads them from a file if it has to, without the lock: that takes some 50 µs,
// whether it succeeds or not, and longer if the disk is slow.
func (c *Cache) load(name string) (*time.Location, error) {
	c.mu.Lock()
	z, known := c.zones[name]
	c.mu.Unlock()
	switch {
	case z.loc != nil:
		return z.loc, nil
	case known && time.Since(z.at) < zoneAgain:
		return nil, unknownHere(name)
	}
	loc, err := LoadZone(name)
	if err != nil && !validZone(name) {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if z := c.zones[name]; z.loc != nil {
		return z.loc, nil // another goroutine has found it first
	}
	if len(c.zones) >= maxZones { // unknown names must not evict rules
		maps.DeleteFunc(c.zones, func(_ string, z zoneFound) bool { return z.loc == nil })
	}
	if c.zones == nil || len(c.zones) >= maxZones { // that many can only be names in other cases
		c.zones = make(map[string]zoneFound)
	}
	c.zones[strings.Clone(name)] = zoneFound{loc, time.Now()}
	return loc, err
}
