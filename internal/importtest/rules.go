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

// Rule forbids a folder to know something. Names without a domain are folders
// of the module.
type Rule struct {
	Folder string   // the folder and all below it; "" is the root package alone
	Not    []string // what it must not import
	// Direct limits the rule to the folder's own import lines. Otherwise what
	// it imports must not import it either.
	Direct bool
	Why    string
}

// rules are the column "must not know", and the sentences below the table.
func rules() []Rule {
	return []Rule{
		{Folder: "cmd", Not: []string{kafka, pebble}, Direct: true, Why: "commands bind flags and start services"},
		{Folder: "intake", Not: []string{pebble, "statestore", "emitter", "delaytopics"}, Why: "intake reads requests, whoever stores them"},
		{Folder: "delaytopics", Not: []string{pebble, "internal/wheel", "intake", "statestore", "emitter"}, Why: "topics know bytes, not what a wheel is"},
		{Folder: "statestore", Not: []string{kafka, "intake", "emitter", "delaytopics"}, Why: "the store is a view and does not know of what"},
		{Folder: "emitter", Not: []string{pebble, "intake", "statestore", "delaytopics"}, Why: "the emitter sends what it is given"},
		{Folder: "internal/timer", Not: []string{kafka, pebble, "", engine}, Why: "the vocabulary is the bottom"},
		{Folder: "internal/wheel", Not: []string{kafka, pebble, "", engine}, Why: "the wheel is pure"},
		{Folder: "internal/membership", Not: []string{pebble, "internal/timer"}, Why: "membership is about partitions"},
		{Folder: "internal/partition", Not: []string{"internal/config", "github.com/spf13", "github.com/knadh/koanf"}, Why: "flags end at the service"},
		{Folder: "internal/service", Not: []string{"bench", "internal/localkafka"}, Why: "an instance starts no brokers"},
		{Folder: "", Not: []string{pebble, "intake", "statestore", "emitter", "delaytopics", "bench", "internal/partition", "internal/service"}, Why: "the public client does not carry the service"},
	}
}

// public are the folders that others could import. Only the root package is
// meant for it; a further one is a decision, not an accident.
func public() []string {
	return []string{"", "cmd", "intake", "delaytopics", "statestore", "emitter", "bench"}
}

// binders are what only internal/service may import all of.
func binders() []string {
	return []string{"intake", "delaytopics", "statestore", "emitter", "internal/config", "internal/membership", "internal/ops"}
}

// service is the one folder that may import all others.
const service = "internal/service"

// forTests are the folders that only tests, and each other, may import.
func forTests() []string {
	return []string{"internal/kafkatest", "internal/rig"}
}

// onTests reports whether a folder is there for tests.
func onTests(folder string) bool {
	return slices.ContainsFunc(forTests(), func(root string) bool { return within(folder, root) })
}

// within reports whether folder is root or below it. The root package has
// nothing below it: every folder has rules of its own.
func within(folder, root string) bool {
	return folder == root || root != "" && strings.HasPrefix(folder, root+"/")
}
