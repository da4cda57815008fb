// Package intake reads request partitions from given offsets, within the topics' quotas (Reader),
// and validates each record by the rules of docs/REFERENCE.md (Rules). A topic may take requests in
// the language of another scheduler (Dialect).
//
// It does not decide what a request does to a timer, stores nothing and commits nothing.
package intake
