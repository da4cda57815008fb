package calendar

import (
	_ "embed" // for zones.txt
	"regexp"
	"strings"

	"github.com/waterclock/waterclock/internal/kit/near"
)

// zoneNames are the IANA names of the Go release that this was last built for, one per line,
// because a machine cannot list the names that it knows. They serve only for suggestions.
// LoadZone decides which names exist.
//
//go:embed zones.txt
var zoneNames string

// DidYouMean returns the end of a sentence about an unknown zone, without its full stop: which name is probably meant,
// or why the text cannot be a name; "" if neither is known.
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

// ofOffset says that an offset is no name, and which zone has that offset all year, if one does.
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
			if d := near.Distance(wanted, lower); d < least {
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
