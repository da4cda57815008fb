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
		{Directory: "intake", Not: []string{pebble, "statestore", "emitter", "emitter/targets", "emitter/repair", "delaytopics", "internal/kafka/topics", "internal/kafka/wire"}, Why: "intake reads requests, whoever stores them"},
		{Directory: "internal/kafka/topics", Not: []string{pebble, "internal/kafka/wire", "internal/partition/memtable", "intake", "statestore", "emitter", "emitter/targets", "emitter/repair"}, Why: "topics are names and settings"},
		{Directory: "internal/kafka/wire", Not: []string{pebble, "internal/partition/memtable", "intake", "statestore", "emitter", "emitter/targets", "emitter/repair"}, Why: "a format does not depend on who writes it"},
		{Directory: "internal/kafka/replay", Not: []string{pebble, "internal/partition/memtable", "intake", "statestore", "emitter", "emitter/targets", "emitter/repair"}, Why: "a replay does not know what it fills"},
		{Directory: "statestore", Not: []string{kafka, "intake", "emitter", "emitter/targets", "emitter/repair", "delaytopics", "internal/kafka/topics", "internal/kafka/wire"}, Why: "the store is a view and does not know of what"},
		{Directory: "emitter", Not: []string{pebble, "intake", "statestore", "delaytopics", "internal/kafka/topics", "internal/kafka/wire"}, Why: "a transaction has what it is given"},
		{Directory: "emitter/repair", Not: []string{pebble, "intake", "statestore", "delaytopics", "internal/kafka/topics", "internal/kafka/wire", "emitter"}, Why: "a transaction is repaired whoever began it"},
		{Directory: "emitter/targets", Not: []string{pebble, "intake", "statestore", "delaytopics", "internal/kafka/topics", "internal/kafka/wire", "emitter", "emitter/repair"}, Why: "a target is healthy or not, whatever is written to it"},
		{Directory: "internal/timer", Not: []string{kafka, pebble, "", engine}, Why: "the vocabulary is the bottom"},
		{Directory: "internal/kit/budget", Not: []string{kafka, pebble, "", engine}, Why: "a budget is arithmetic"},
		{Directory: "internal/partition/tracker", Not: []string{kafka, pebble, "", engine}, Why: "the tracker is pure"},
		{Directory: "internal/partition/memtable", Not: []string{kafka, pebble, "", "intake", "statestore", "internal/partition/planner", "internal/partition"}, Why: "memory does not depend on who decides"},
		{Directory: "internal/partition/planner", Not: []string{kafka, pebble, "", "intake", "delaytopics", "internal/kafka/topics", "internal/kafka/wire", "statestore", "emitter", "emitter/targets", "emitter/repair"}, Why: "what decides about timers is pure"},
		{Directory: "internal/timer/calendar", Not: []string{kafka, pebble, "", "intake", "delaytopics", "internal/kafka/topics", "internal/kafka/wire", "statestore", "emitter", "emitter/targets", "emitter/repair", "internal/ownership", "internal/partition"}, Why: "the calendar is pure"},
		{Directory: "internal/timer/query", Not: []string{kafka, pebble, "", "intake", "delaytopics", "internal/kafka/topics", "internal/kafka/wire", "statestore", "emitter", "emitter/targets", "emitter/repair", "internal/partition/planner", "internal/partition"}, Why: "words know nobody who uses them"},
		{Directory: "internal/ownership/membership", Not: []string{pebble, "internal/partition/memtable", "internal/partition/planner"}, Why: "membership is about partitions"},
		{Directory: "internal/ownership", Not: []string{"intake", "internal/partition/planner", "internal/partition", "delaytopics", "internal/ownership/membership", "internal/node/config"}, Why: "owning a partition is the same whatever is done with it"},
		{Directory: "internal/partition", Not: []string{"internal/node/config", "github.com/spf13", "github.com/knadh/koanf"}, Why: "flags end at the service"},
		{Directory: "internal/partition/questions", Not: []string{pebble, "intake", "delaytopics", "emitter", "emitter/targets", "emitter/repair", "internal/ownership/membership", "internal/partition"}, Direct: true, Why: "a question reads what is committed, and changes nothing"},
		{Directory: "delaytopics", Not: []string{"internal/node/config", "github.com/spf13", "github.com/knadh/koanf"}, Why: "flags end at the service"},
		{Directory: "internal/api", Not: []string{kafka, pebble, "intake", "statestore", "emitter", "emitter/targets", "emitter/repair", "delaytopics", "internal/kafka/topics", "internal/kafka/wire", "internal/partition", "internal/ownership", "internal/node/config", "internal/node"}, Direct: true, Why: "the API asks whoever knows, and does not know how"},
		{Directory: "internal/api/access", Not: []string{kafka, pebble, "", engine, "github.com/spf13"}, Why: "who may do what does not depend on what is done"},
		{Directory: "internal/api/console", Not: []string{kafka, pebble, "intake", "delaytopics", "internal/kafka/topics", "internal/kafka/wire", "statestore", "emitter", "emitter/targets", "emitter/repair", "internal/partition/planner", "internal/partition", "internal/ownership", "internal/node/config", "internal/api/route", "internal/timer/query"}, Direct: true, Why: "the console knows what the API says, and no more"},
		{Directory: "internal/audit/history", Not: []string{pebble, engine}, Direct: true, Why: "a verdict rests on what users see, not on the service's code"},
		{Directory: "internal/api/recent", Not: []string{kafka, pebble, "", engine}, Why: "what was counted does not depend on who asks"},
		{Directory: "deploy/monitoring", Not: []string{kafka, pebble, "", engine}, Why: "a list of alerts is text"},
		{Directory: "internal/node", Not: []string{"bench", "internal/kit/localkafka"}, Why: "an instance starts no brokers"},
		{Directory: "", Not: []string{pebble, "intake", "statestore", "emitter", "emitter/targets", "emitter/repair", "delaytopics", "internal/kafka/topics", "internal/kafka/wire", "bench", "internal/partition", "internal/node"}, Why: "the public client does not carry the service"},
	}
}

// public are the directories that others could import. Only the root package is
// meant for it; a further one is a decision, not an accident.
func public() []string {
	return []string{"", "cmd", "intake", "delaytopics", "statestore", "bench"}
}

// binders are what only internal/node may import all of.
func binders() []string {
	return []string{"intake", "internal/kafka/topics", "statestore", "emitter", "internal/node/config", "internal/ownership/membership", "internal/node/ops"}
}

// service is the one directory that may import all others.
const service = "internal/node"

// forTests are the directories that only tests, and each other, may import.
func forTests() []string {
	return []string{"internal/kafkatest/await", "internal/kafkatest/corpus", "internal/kafkatest", "test/rig", "internal/kafkatest/runs"}
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
