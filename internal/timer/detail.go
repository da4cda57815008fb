package timer

import "strings"

// MaxDetailBytes bounds the detail of a rejection, of an event and of a dead letter. Errors that a detail quotes may be
// as long as the request.
const MaxDetailBytes = 1024

// CutDetail returns at most MaxDetailBytes of a detail, cut between two characters. What it cuts does not share the
// detail's memory.
func CutDetail(detail string) string {
	if len(detail) <= MaxDetailBytes {
		return detail
	}
	return strings.ToValidUTF8(strings.Clone(detail[:MaxDetailBytes]), "")
}
