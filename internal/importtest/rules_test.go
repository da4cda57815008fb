package importtest

import (
	"slices"
	"strings"
)

// Import paths that the rules speak of. One names a package and all below it.
const (
	kafka  = "github.com/twmb/franz-go"
	pebble = "github.com/cockroachdb/pebble"
	// engine is any package of this module, the root one excepted.
	engine = "engine"
)

// Rule forbids a directory to know something. Names without a domain are directories
// of the module.
type Rule struct {
	Directory string   // the directory and all below it; "" is the root package alone
	Not       []string // what it must not import
	// Direct limits the rule to the directory's own import lines. Otherwise what
	// it imports must not import it either.
	Direct bool
	Why    string
}

// rules say who must not know what.
func rules() []Rule {
	return []Rule{
		{Directory: "cmd", Not: []string{kafka, pebble}, Direct: true, Why: "commands bind flags and start services"},
		{Directory: "intake", Not: []string{pebble, "statestore", "internal/transaction", "internal/targets", "internal/hanging", "delaytopics", "internal/topics", "internal/wire"}, Why: "intake reads requests, whoever stores them"},
		{Directory: "internal/topics", Not: []string{pebble, "internal/wire", "internal/memtable", "intake", "statestore", "internal/transaction", "internal/targets", "internal/hanging"}, Why: "topics are names and settings"},
		{Directory: "internal/wire", Not: []string{pebble, "internal/memtable", "intake", "statestore", "internal/transaction", "internal/targets", "internal/hanging"}, Why: "a format does not depend on who writes it"},
		{Directory: "internal/replay", Not: []string{pebble, "internal/memtable", "intake", "statestore", "internal/transaction", "internal/targets", "internal/hanging"}, Why: "a replay does not know what it fills"},
		{Directory: "statestore", Not: []string{kafka, "intake", "internal/transaction", "internal/targets", "internal/hanging", "delaytopics", "internal/topics", "internal/wire"}, Why: "the store is a view and does not know of what"},
		{Directory: "internal/transaction", Not: []string{pebble, "intake", "statestore", "delaytopics", "internal/topics", "internal/wire"}, Why: "a transaction has what it is given"},
		{Directory: "internal/hanging", Not: []string{pebble, "intake", "statestore", "delaytopics", "internal/topics", "internal/wire", "internal/transaction"}, Why: "a transaction is repaired whoever began it"},
		{Directory: "internal/targets", Not: []string{pebble, "intake", "statestore", "delaytopics", "internal/topics", "internal/wire", "internal/transaction", "internal/hanging"}, Why: "a target is healthy or not, whatever is written to it"},
		{Directory: "internal/timer", Not: []string{kafka, pebble, "", engine}, Why: "the vocabulary is the bottom"},
		{Directory: "internal/budget", Not: []string{kafka, pebble, "", engine}, Why: "a budget is arithmetic"},
		{Directory: "internal/tracker", Not: []string{kafka, pebble, "", engine}, Why: "the tracker is pure"},
		{Directory: "internal/memtable", Not: []string{kafka, pebble, "", "intake", "statestore", "internal/planner", "internal/partition"}, Why: "memory does not depend on who decides"},
		{Directory: "internal/planner", Not: []string{kafka, pebble, "", "intake", "delaytopics", "internal/topics", "internal/wire", "statestore", "internal/transaction", "internal/targets", "internal/hanging"}, Why: "what decides about timers is pure"},
		{Directory: "internal/calendar", Not: []string{kafka, pebble, "", "intake", "delaytopics", "internal/topics", "internal/wire", "statestore", "internal/transaction", "internal/targets", "internal/hanging", "internal/ownership", "internal/partition"}, Why: "the calendar is pure"},
		{Directory: "internal/query", Not: []string{kafka, pebble, "", "intake", "delaytopics", "internal/topics", "internal/wire", "statestore", "internal/transaction", "internal/targets", "internal/hanging", "internal/planner", "internal/partition"}, Why: "words know nobody who uses them"},
		{Directory: "internal/membership", Not: []string{pebble, "internal/memtable", "internal/planner"}, Why: "membership is about partitions"},
		{Directory: "internal/ownership", Not: []string{"intake", "internal/planner", "internal/partition", "delaytopics", "internal/membership", "internal/config"}, Why: "owning a partition is the same whatever is done with it"},
		{Directory: "internal/partition", Not: []string{"internal/config", "github.com/spf13", "github.com/knadh/koanf"}, Why: "flags end at the service"},
		{Directory: "internal/partition/questions", Not: []string{pebble, "intake", "delaytopics", "internal/transaction", "internal/targets", "internal/hanging", "internal/membership", "internal/partition"}, Direct: true, Why: "a question reads what is committed, and changes nothing"},
		{Directory: "delaytopics", Not: []string{"internal/config", "github.com/spf13", "github.com/knadh/koanf"}, Why: "flags end at the service"},
		{Directory: "internal/api", Not: []string{kafka, pebble, "intake", "statestore", "internal/transaction", "internal/targets", "internal/hanging", "delaytopics", "internal/topics", "internal/wire", "internal/partition", "internal/ownership", "internal/config", "internal/service"}, Direct: true, Why: "the API asks whoever knows, and does not know how"},
		{Directory: "internal/api/access", Not: []string{kafka, pebble, "", engine, "github.com/spf13"}, Why: "who may do what does not depend on what is done"},
		{Directory: "internal/api/console", Not: []string{kafka, pebble, "intake", "delaytopics", "internal/topics", "internal/wire", "statestore", "internal/transaction", "internal/targets", "internal/hanging", "internal/planner", "internal/partition", "internal/ownership", "internal/config", "internal/api/route", "internal/query"}, Direct: true, Why: "the console knows what the API says, and no more"},
		{Directory: "internal/history", Not: []string{pebble, engine}, Direct: true, Why: "a verdict rests on what users see, not on the service's code"},
		{Directory: "internal/recent", Not: []string{kafka, pebble, "", engine}, Why: "what was counted does not depend on who asks"},
		{Directory: "internal/kit", Not: []string{kafka, pebble, "", engine}, Why: "a list of alerts is text"},
		{Directory: "internal/service", Not: []string{"bench", "internal/localkafka"}, Why: "an instance starts no brokers"},
		{Directory: "", Not: []string{pebble, "intake", "statestore", "internal/transaction", "internal/targets", "internal/hanging", "delaytopics", "internal/topics", "internal/wire", "bench", "internal/partition", "internal/service"}, Why: "the public client does not carry the service"},
	}
}

// public are the directories that others could import. Only the root package is
// meant for it; a further one is a decision, not an accident.
func public() []string {
	return []string{"", "cmd", "intake", "delaytopics", "statestore", "bench"}
}

// binders are what only internal/service may import all of.
func binders() []string {
	return []string{"intake", "internal/topics", "statestore", "internal/transaction", "internal/config", "internal/membership", "internal/ops"}
}

// service is the one directory that may import all others.
const service = "internal/service"

// forTests are the directories that only tests, and each other, may import.
func forTests() []string {
	return []string{"internal/await", "internal/corpus", "internal/kafkatest", "internal/rig", "internal/runs"}
}

// onTests reports whether a directory is there for tests.
func onTests(directory string) bool {
	return slices.ContainsFunc(forTests(), func(root string) bool { return within(directory, root) })
}

// within reports whether directory is root or below it. The root package has
// nothing below it: every directory has rules of its own.
func within(directory, root string) bool {
	return directory == root || root != "" && strings.HasPrefix(directory, root+"/")
}
