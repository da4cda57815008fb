// Package wire is the format of every record that the service writes to its own topics, and of
// the metadata of its offset commits.
//
// What it encodes it decodes, in this and in every later version. A decoder answers bytes of a
// later version with ErrNewerFormat and any other bytes with ErrCorrupt, and never panics.
package wire
