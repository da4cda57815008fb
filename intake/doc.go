// Package intake takes requests in: it reads request partitions from offsets of
// our own (Reader), judges each record by the contract with users (Rules), and
// keeps the order in which what was planned may be committed (Tracker).
//
// It does not decide what a request does to a timer, stores nothing and commits
// nothing.
package intake
