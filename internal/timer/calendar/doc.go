// Package calendar computes when recurring timers are due: after an interval, or when the clock of a time zone
// matches a cron expression.
//
//	e, err := calendar.Parse("0 9 * * mon-fri")
//	zone, err := calendar.LoadZone("Europe/Berlin")
//	instant, _ := e.In(zone).Next(time.Now().Unix())
//
// It is pure, with no clock, goroutine or I/O, except that it reads the rules of a zone once, and looks for missing
// rules again at most once a second.
//
// # Expressions
//
// [Parse] reads five fields, or six with seconds in front, as crontab(5) does. Expressions are stored with timers and
// mean the same in every later version. That is one reason why the package parses them itself; good error messages
// are the other. The best maintained library changed from "day of the month or day of the week" to "and" in a minor
// version.
//
// # Clocks that change
//
// An expression matches readings of a clock: a date and a time of day. A reading comes at the first instant at which
// the zone's clock shows it or a later one. So a reading that the clock skips comes at the end of the gap, a reading
// that the clock shows twice comes the first time, and no reading comes twice. Readings that come at the same instant
// are one occurrence. A day that a zone skips is a gap like any other.
//
// For an expression that matches in every hour, these rules would leave holes of an hour. Such an expression follows
// real time instead: it comes at every instant at which the clock shows a matching reading, also the second time, and
// skipped readings do not come at all.
//
// # Guarantees
//
// No call takes longer than 10 ms, however odd the expression is and however far apart its instants are. Readings are
// counted by days and months, not one by one, and Parse rejects an expression that no date ever matches. The stored
// state of a timer, [timer.Recurrence], is enough to continue from.
package calendar
