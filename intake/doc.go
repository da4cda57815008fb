// Package intake reads request partitions from given offsets, within the topics' quotas ([Reader]), and validates
// each record by the rules of docs/REFERENCE.md ([Rules]). A topic may take requests in the language of another
// scheduler ([Dialect]).
//
//	request, misplaced, refusal := rules.Validate(record, now)
//
// It does not decide the effect of a request on a timer, stores nothing and commits nothing.
package intake
