// Package wire has the formats of the records that the service writes to its own topics, and of the metadata of its
// offset commits. docs/internals/FORMAT.md has the same tables with examples.
//
//	value := checkpoint.AppendTo(nil)
//	checkpoint, err := wire.DecodeCheckpoint(value)
//
//	topic          key                 value
//	changelog      01 ID               a timer (package timer); null: no longer pending
//	               02                  Checkpoint
//	               03                  Claim
//	checkpoints    02, 03              as in a changelog: it has no timers
//	dead letters   key of the record   its value, with headers that say why: see DeadRequest
//	events         ID, or empty        JSON: see Event
//
// A value in bytes begins with the number of its format. Then come fields without names:
//
//	uvarint   as in encoding/binary, in its shortest form
//	varint    the same, zigzag
//	text      uvarint length, then that many bytes
//	UUID      16 bytes
//
// This and every later version decodes everything that the package encodes. A decoder returns ErrNewerFormat for bytes
// of a later version and ErrCorrupt for any other bytes, and never panics.
package wire
