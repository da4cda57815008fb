package near

// Millis returns the Unix milliseconds that a number probably means that is in another unit, and the name of that unit.
// Seconds are numbers below 100000000000, which as milliseconds lie before March 1973. Micro- and nanoseconds are those
// of the years 2017 to 2100: a larger number may be meant as the end of time. For all others the unit is "".
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
