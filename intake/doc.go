// Package intake takes requests in: it reads request partitions from offsets of
// our own, no faster than they may come (Reader), and validates each record by the
// contract with users, in the language of another scheduler where that is asked for
// (Rules, Dialect).
//
// It does not decide what a request does to a timer, stores nothing and commits
// nothing.
package intake
