package near

// Millis guesses whether a Unix time that should be in milliseconds is in another unit. It returns the milliseconds and
// the name of the unit; "" if the number is probably right. Numbers below 100000000000, which as milliseconds lie
// before March 1973, are seconds. Micro- and nanoseconds are those of the years 2017 to 2100: a larger number may stand
// for the end of time.
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
