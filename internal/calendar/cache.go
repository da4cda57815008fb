package calendar

import (
	"strings"
	"sync"
	"time"

	"github.com/waterclock/waterclock/internal/timer"
)

// maxSchedules is how many schedules a Cache remembers at most, of some 200 bytes and
// twice the expression each. There are some 600 zones.
const (
	maxSchedules = 4096
	maxZones     = 1024
	// zoneAgain is how long a zone that is not known is not looked for again.
	zoneAgain = time.Second
)

// Cache remembers schedules and zones, so that timers with the same expression
// share them. Any number of goroutines may use it; its zero value is ready.
type Cache struct {
	mu sync.Mutex
	// Schedules that were used of late, and those that were before: when there are
	// half of maxSchedules of the former they become the latter.
	now, before map[key]*Schedule
	zones       map[string]*time.Location
	unknown     map[string]time.Time // zones, and when they were looked for
}

type key struct{ expression, zone string }

// Recurrence returns what works out a timer's recurrence. The error wraps
// ErrUnknownZone where the machine that took the timer in knew a zone that this one
// does not; it says what is wrong, without the timer.
func (c *Cache) Recurrence(of *timer.Recurrence) (Recurrence, error) {
	if of.Every > 0 {
		return Recurrence{Recurrence: of}, nil
	}
	s, err := c.Schedule(of.Cron, of.Zone)
	return Recurrence{of, s}, err
}

// Schedule returns the schedule of an expression in a zone, by its IANA name; "" is
// UTC. Errors are those of Parse and LoadZone.
func (c *Cache) Schedule(expression, zone string) (*Schedule, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := key{expression, zone}
	if s := c.now[k]; s != nil {
		return s, nil
	}
	s := c.before[k]
	if s == nil {
		e, err := Parse(expression)
		if err != nil {
			return nil, err
		}
		loc, err := c.load(zone)
		if err != nil {
			return nil, err
		}
		s = e.In(loc)
	}
	if c.now == nil || len(c.now) >= maxSchedules/2 {
		c.now, c.before = make(map[key]*Schedule), c.now
	}
	c.now[key{strings.Clone(expression), strings.Clone(zone)}] = s
	return s, nil
}

// Len is how many schedules are remembered.
func (c *Cache) Len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.now) + len(c.before)
}

// load returns the rules of a zone. Reading them takes some 50 µs, and so does looking in vain.
func (c *Cache) load(name string) (*time.Location, error) {
	if loc := c.zones[name]; loc != nil {
		return loc, nil
	}
	if at, in := c.unknown[name]; in && time.Since(at) < zoneAgain {
		return nil, unknownHere(name)
	}
	loc, err := LoadZone(name)
	if err != nil && validZone(name) {
		if c.unknown == nil || len(c.unknown) >= maxZones {
			c.unknown = make(map[string]time.Time)
		}
		c.unknown[strings.Clone(name)] = time.Now()
	}
	if err != nil {
		return nil, err
	}
	delete(c.unknown, name)
	if c.zones == nil {
		c.zones = make(map[string]*time.Location)
	}
	if len(c.zones) < maxZones { // where names differ in case alone there could be more
		c.zones[strings.Clone(name)] = loc
	}
	return loc, nil
}
