package calendar

import (
	_ "embed" // for zones.txt
	"strings"

	"github.com/waterclock/waterclock/internal/near"
)

// zoneNames are the IANA names of the Go release that this was last built for, one per line,
// because a machine cannot list the names that it knows. They serve only for suggestions.
// LoadZone decides which names exist.
//
//go:embed zones.txt
var zoneNames string

// NearestZone returns the name of the time zone that was probably meant, or "". It finds names in
// other case, with spaces, with only the town, or with up to two wrong letters.
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
			// No name is near. Few names are compared.
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

// DidYouMean returns the end of a sentence that suggests a zone, without its full stop, or "".
func DidYouMean(found string) string {
	if name := NearestZone(found); name != "" {
		return " (did you mean " + name + "?)"
	}
	return ""
}

// ZoneNames returns the IANA names that are suggested, for completion. LoadZone may know others.
func ZoneNames() []string { return strings.Split(strings.TrimSpace(zoneNames), "\n") }
