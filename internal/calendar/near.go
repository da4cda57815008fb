package calendar

import (
	_ "embed" // the names
	"strings"

	"github.com/waterclock/waterclock/internal/near"
)

// zoneNames are the IANA names of the release of Go that this was last built for, one a line: no
// machine tells which it knows. They only serve to propose one; which there are LoadZone decides.
//
//go:embed zones.txt
var zoneNames string

// NearestZone is the name of a time zone that may have been meant, or "": one in other letters'
// case, with spaces, of which only the town is given, or with up to two letters wrong.
func NearestZone(found string) string {
	wanted := strings.ToLower(strings.ReplaceAll(strings.TrimSpace(found), " ", "_"))
	if wanted == "" || len(wanted) > maxZoneBytes {
		return ""
	}
	town, misspelt, least := "", "", 3
	for name := range strings.Lines(zoneNames) {
		name = strings.TrimSuffix(name, "\n")
		lower := strings.ToLower(name)
		switch {
		case lower == wanted:
			return name
		case town == "" && strings.HasSuffix(lower, "/"+wanted):
			town = name
		case lower[0] != wanted[0], len(lower)-len(wanted) > 2, len(wanted)-len(lower) > 2:
			// It is none that is near; few are compared.
		default:
			if d := near.Distance(wanted, lower); d < least {
				misspelt, least = name, d
			}
		}
	}
	if town != "" {
		return town
	}
	return misspelt
}

// DidYouMean is the end of a sentence that proposes a zone, before its full stop, or "".
func DidYouMean(found string) string {
	if name := NearestZone(found); name != "" {
		return " (did you mean " + name + "?)"
	}
	return ""
}
