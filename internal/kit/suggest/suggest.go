// Package suggest finds the name that a misspelt one may stand for: suggest.Name("timer-aftr", "", known) is
// "timer-after". It is pure.
package suggest

import "strings"

// Name returns the known name nearest to the one found, or one that ends or begins with its words; "" if there is
// none. It compares the part after the prefix that all names share.
func Name(found, prefix string, known []string) string {
	best, bestDistance, longer := "", 0, ""
	for _, name := range known {
		d := Distance(strings.TrimPrefix(found, prefix), strings.TrimPrefix(name, prefix))
		if best == "" || d < bestDistance {
			best, bestDistance = name, d
		}
		if longer == "" && (strings.HasSuffix(name, "-"+strings.TrimPrefix(found, prefix)) ||
			strings.HasPrefix(name, found+"-")) {
			longer = name
		}
	}
	if bestDistance > max(2, (len(found)-len(prefix))/3) {
		return longer
	}
	return best
}

// Hint returns "; did you mean X?" with the result of Name, "" if there is none.
func Hint(found, prefix string, known []string) string {
	if best := Name(found, prefix, known); best != "" {
		return "; did you mean " + best + "?"
	}
	return ""
}

// Header suggests a header of a request for a misspelt one, or for another scheduler's name of it.
func Header(found string, known []string) string {
	found = strings.ToLower(found)
	if is := otherwise[found]; is != "" {
		return is
	}
	return Name(found, "timer-", known)
}

// otherwise maps the names that other schedulers, and everyday speech, have for headers and that no spelling is near
// to.
var otherwise = map[string]string{
	"timer-due": "timer-at", "timer-time": "timer-at", "timer-date": "timer-at", "timer-timestamp": "timer-at",
	"timer-in": "timer-after", "timer-delay": "timer-after",
	"timer-interval": "timer-every", "timer-period": "timer-every", "timer-schedule": "timer-cron",
	"timer-tz": "timer-zone", "timer-timezone": "timer-zone",
	"timer-to": "timer-target-topic", "timer-destination": "timer-target-topic",
	"timer-ttl": "timer-max-late", "timer-expiry": "timer-max-late", "timer-delete": "timer-cancel",
}

// Distance returns the Levenshtein distance: how many bytes to insert, delete or change.
func Distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}

// Millis guesses whether a Unix time that should be in milliseconds is in another unit. It returns the milliseconds
// and the name of the unit; "" if the number is probably right. Numbers below 100000000000, which as milliseconds are
// before March 1973, are taken for seconds. Micro- and nanoseconds are recognized for the years 2017 to 2100: a
// larger number may mean the end of time.
func Millis(number int64) (millis int64, unit string) {
	const (
		leastMillis = 100_000_000_000
		from, until = 1_483_228_800_000, 4_133_980_800_000
		micros      = 1000
		nanos       = 1000 * micros
	)
	switch {
	case number < leastMillis:
		return number * 1000, "seconds"
	case number >= from*micros && number < until*micros:
		return number / micros, "microseconds"
	case number >= from*nanos && number < until*nanos:
		return number / nanos, "nanoseconds"
	}
	return number, ""
}
