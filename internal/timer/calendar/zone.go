package calendar

import (
	_ "embed"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/waterclock/waterclock/internal/kit/suggest"
)

const (
	// maxOffset is more than the clock of any zone has ever been ahead of UTC or behind it, in seconds.
	maxOffset = 26 * hourSeconds
	// maxSetBack is more than any clock was ever set back, in seconds: Alaska and the Philippines have had one day
	// twice.
	maxSetBack = 28 * hourSeconds

	maxZoneBytes = 64
)

// ErrUnknownZone means that this machine has no rules for a time zone.
var ErrUnknownZone = errors.New("unknown time zone")

// LoadZone returns the rules of a time zone by its IANA name; "" is UTC. It uses the rules of the machine, or those
// built into the program if the machine has none. The error wraps ErrUnknownZone.
func LoadZone(name string) (*time.Location, error) {
	if name == "" {
		return time.UTC, nil
	}
	if !validZone(name) {
		return nil, fmt.Errorf("%w: %s is no IANA name", ErrUnknownZone, quote(name))
	}
	loc, err := time.LoadLocation(name)
	if err != nil {
		return nil, unknownHere(name)
	}
	return loc, nil
}

func unknownHere(name string) error {
	return fmt.Errorf("%w: no rules for %s are known here", ErrUnknownZone, quote(name))
}

// validZone rejects names of files in the zone directories that are not zones, or that differ from machine to machine.
func validZone(name string) bool {
	switch {
	case len(name) > maxZoneBytes, strings.HasPrefix(name, "right/"), strings.HasPrefix(name, "posix/"):
		return false
	}
	switch name {
	case "Local", "localtime", "posixrules", "Factory":
		return false
	}
	for part := range strings.SplitSeq(name, "/") {
		if part == "" || part[0] < 'A' || part[0] > 'Z' {
			return false
		}
		for _, c := range []byte(part) {
			switch {
			case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '_', c == '-', c == '+':
			default:
				return false
			}
		}
	}
	return true
}

// zone is the local clock of a place. Instants are Unix seconds.
type zone struct{ loc *time.Location }

// The ends of time, far from any instant and from overflow.
const (
	beginning int64 = -1 << 60
	end       int64 = 1 << 60
)

// period is a time in which a clock is not changed. From start, and before end, it is offset seconds ahead of UTC. The
// next period may have the same offset.
type period struct{ start, end, offset int64 }

// at returns the period that contains an instant.
func (z zone) at(instant int64) period {
	t := time.Unix(instant, 0).In(z.loc)
	_, offset := t.Zone()
	p := period{beginning, end, int64(offset)}
	start, stop := t.ZoneBounds()
	if !start.IsZero() {
		p.start = min(start.Unix(), instant)
	}
	if !stop.IsZero() {
		p.end = stop.Unix()
	}
	if p.end <= instant {
		// After the last listed change, package time assumes years of 365 days. Nothing changes on the last day of a
		// leap year.
		p.end = time.Date(t.UTC().Year()+1, 1, 1, 0, 0, 0, 0, time.UTC).Unix()
	}
	return p
}

// shown returns the latest reading that the clock has shown up to an instant.
func (z zone) shown(instant int64) reading {
	p := z.at(instant)
	latest := instant + p.offset
	for p.start > instant-maxSetBack {
		start := p.start
		p = z.at(start - 1)
		latest = max(latest, start-1+p.offset)
	}
	return latest
}

// reaches returns the first instant at which the clock shows a reading or a later one.
func (z zone) reaches(r reading) int64 {
	for instant := r - maxOffset; ; {
		p := z.at(instant)
		if instant+p.offset >= r {
			return instant
		}
		if r-p.offset < p.end {
			return r - p.offset
		}
		instant = p.end
	}
}

// Change is a moment at which a zone's clock is changed.
type Change struct {
	At            int64 // Unix seconds
	Before, After int64 // how far the clock is ahead of UTC, in seconds; they differ
}

// Changes returns at most limit changes of a zone's clock in (after, until], in Unix seconds.
func Changes(loc *time.Location, after, until int64, limit int) (list []Change) {
	z := zone{loc}
	p := z.at(after)
	for p.end <= until && len(list) < limit {
		next := z.at(p.end)
		if next.offset != p.offset {
			list = append(list, Change{At: p.end, Before: p.offset, After: next.offset})
		}
		p = period{p.end, next.end, next.offset}
	}
	return list
}

// zoneNames are the IANA names known to the Go release that this was last built for, one per line, because a machine
// cannot list the names that it knows. They are only for suggestions: LoadZone decides which names exist.
//
//go:embed zones.txt
var zoneNames string

// DidYouMean returns the end of a sentence about an unknown zone, without its full stop: the name that is probably
// meant, or the reason why the text cannot be a name; "" if neither is known.
func DidYouMean(found string) string {
	if m := offsetLike.FindStringSubmatch(found); m != nil {
		return ofOffset(found, m[1], m[2], m[3])
	}
	if names := nearestZones(found); len(names) > 0 {
		return " (did you mean " + strings.Join(names, " or ") + "?)"
	}
	if strings.Contains(abbreviations, " "+strings.ToUpper(found)+" ") {
		return " (" + found + " is an abbreviation and no name: name a place whose clock shows it, as in " +
			"America/Los_Angeles)"
	}
	return ""
}

// offsetLike matches offsets from UTC: sign, hours, minutes.
var offsetLike = regexp.MustCompile(`^(?i:UTC|GMT|Z)?([+-])(\d{1,2})(?::?(\d\d))?$`)

// ofOffset explains that an offset is not a name, and names a zone that has that offset all year, if there is one.
func ofOffset(found, sign, hours, minutes string) string {
	text := " (" + found + " is an offset and no name: name a place"
	reversed := map[string]string{"+": "-", "-": "+"}[sign]
	name := "Etc/GMT" + reversed + strings.TrimPrefix(hours, "0")
	if _, err := LoadZone(name); err == nil && strings.Trim(minutes, "0") == "" {
		text += ", or " + name + ", which has that offset all year and a sign that is reversed"
	}
	return text + ")"
}

// abbreviations are common ones that are not themselves IANA names. Several places use most of them, at different
// offsets: IST is that of India, Israel and Ireland.
const abbreviations = " PT PST PDT MT MDT CT CST CDT ET EDT AST ADT NST NDT AKST AKDT BST IST IDT CEST EEST WEST " +
	"MSK JST KST " +
	"AEST AEDT ACST ACDT AWST NZST NZDT SAST WAT CAT EAT PKT SGT HKT BRT ART CLT GST ICT WIB PHT SST "

// nearestZones returns the names of time zones that may be meant. It finds names in other case, with spaces, with only
// the town, which two zones may have, or with up to two wrong letters. Short words are near too many names.
func nearestZones(found string) []string {
	wanted := strings.ToLower(strings.ReplaceAll(strings.TrimSpace(found), " ", "_"))
	if wanted == "" || len(wanted) > maxZoneBytes {
		return nil
	}
	const short = 6 // bytes
	misspelt, least := "", 3
	var towns []string
	for name := range strings.Lines(zoneNames) {
		name = strings.TrimSuffix(name, "\n")
		lower := strings.ToLower(name)
		switch {
		case lower == wanted:
			return []string{name}
		case strings.HasSuffix(lower, "/"+wanted):
			towns = append(towns, name)
		case len(wanted) < short, lower[0] != wanted[0], len(lower)-len(wanted) > 2, len(wanted)-len(lower) > 2:
			// No name is near. Few names are compared.
		default:
			if d := suggest.Distance(wanted, lower); d < least {
				misspelt, least = name, d
			}
		}
	}
	if len(towns) == 0 && misspelt != "" {
		return []string{misspelt}
	}
	return towns
}

// ZoneNames returns the IANA names that are suggested, for completion. LoadZone may know others.
func ZoneNames() []string { return strings.Split(strings.TrimSpace(zoneNames), "\n") }
