// Package calendar says when recurring timers are due: after an interval, or when
// the clock on the wall of a time zone shows what a cron expression says. It is
// pure: no clock, goroutine or I/O, but that a zone's rules are read once, and looked for
// again each second at most while they are not there.
//
// # Expressions
//
// [Parse] reads five fields, or six with seconds in front, as crontab(5) has them.
// Expressions are stored with timers and mean the same in every later version.
// That, and what it says of faults, is why the package parses them itself: of the
// libraries there are, the one best kept has changed from "day of the month or day
// of the week" to "and" in a minor version.
//
// # Clocks that change
//
// An expression matches readings of a clock: a date and a time of the day. A reading
// comes at the first instant at which the clock of the zone shows it or a later one.
// So a reading that the clock skips comes at the end of the gap, one that it shows
// twice comes the first time, and none comes twice; readings that come at one
// instant are one occurrence. A day that a zone skips is a gap like any other.
//
// Where the expression allows every hour that would leave holes of an hour, so it
// follows real time: it comes at every instant at which the clock shows a reading
// that matches, the second time too, and what is skipped is skipped.
//
// # What is promised
//
// No call takes longer than 10 ms, however odd the expression and however long the
// way: readings are counted by days and months, not one by one, and an expression
// that no date ever matches is refused by Parse. What is stored of a timer, see
// [timer.Recurrence], suffices to go on from it.
package calendar
