package rates

import "path"

// Rate is the rate of the targets that a glob matches.
type Rate struct {
	// Scope is the request topic whose firings alone count; empty: those of all request topics count together.
	Scope     string
	Glob      string  // of target topics, as in path.Match
	PerSecond float64 // more than 0
	Burst     float64 // the most firings at once after a pause, at least 1
}

// Rules are the rates for the firings of each request topic, by its name: the first one whose glob matches counts. A
// Rules is not changed.
type Rules map[string][]Rate

// of returns the rate of a target for the firings of a request topic; false if it has none.
func (r Rules) of(requests, target string) (Rate, bool) {
	for _, rate := range r[requests] {
		if ok, err := path.Match(rate.Glob, target); ok && err == nil {
			return rate, true
		}
	}
	return Rate{}, false
}
