package wire

import (
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
)

// maxNoteBytes is how long a broker lets the metadata of an offset commit be
// (offset.metadata.max.bytes; Kafka counts UTF-16 units, a note is ASCII).
const maxNoteBytes = 4096

const (
	notePrefix = "wc"
	noteFormat = "wc1"
	noteStep   = "step="
	noteLast   = "last="
	noteCount  = "partitions="
	noteAPI    = "api="
)

// ErrForeignNote says that an offset was not committed by waterclock: its
// metadata is empty or somebody else's.
var ErrForeignNote = errors.New("offset was committed by another program")

// CommitNote is the metadata string of each offset that a step commits: it
// tells afterwards whether a step of doubtful outcome was committed.
//
//	wc1 step=STEP last=LAST partitions=COUNT api=URL
//
// Names and URL are %-escaped as in URLs, so they hold neither space nor "=";
// all but "step=" is left out where it is empty or 0, and fields with other names
// are passed over.
type CommitNote struct {
	Step string // the step that committed the offset
	Last string // in a claim's note: the last step that was not a claim
	// Partitions of the request topic as the step's owner knew it; 0: not said.
	Partitions int32
	// API is the address that others reach its owner's API at, as a URL; empty: it has none.
	API string
}

// Process is the ID of the owner's process: what the name of a step begins with.
func (n CommitNote) Process() string {
	process, _, _ := strings.Cut(n.Step, "/")
	return process
}

// String returns the note, ASCII. It is below maxNoteBytes if the names have at
// most 600 bytes each.
func (n CommitNote) String() string {
	s := noteFormat + " " + noteStep + url.QueryEscape(n.Step)
	if n.Last != "" {
		s += " " + noteLast + url.QueryEscape(n.Last)
	}
	if n.Partitions > 0 {
		s += " " + noteCount + strconv.Itoa(int(n.Partitions))
	}
	if n.API != "" {
		s += " " + noteAPI + url.QueryEscape(n.API)
	}
	return s
}

// ParseCommitNote reads the metadata of a committed offset. Errors wrap
// ErrForeignNote or ErrNewerFormat.
func ParseCommitNote(s string) (n CommitNote, err error) {
	fields := strings.Split(s, " ")
	if fields[0] != noteFormat {
		return n, fmt.Errorf("parse note %.40q: %w", s, noteError(fields[0]))
	}
	for _, f := range fields[1:] {
		switch {
		case strings.HasPrefix(f, noteStep):
			n.Step, err = url.QueryUnescape(f[len(noteStep):])
		case strings.HasPrefix(f, noteLast):
			n.Last, err = url.QueryUnescape(f[len(noteLast):])
		case strings.HasPrefix(f, noteCount):
			var count uint64
			count, err = strconv.ParseUint(f[len(noteCount):], 10, 31)
			n.Partitions = int32(count)
		case strings.HasPrefix(f, noteAPI):
			n.API, err = url.QueryUnescape(f[len(noteAPI):])
		}
		if err != nil {
			return CommitNote{}, fmt.Errorf("parse note %.40q: %w: %w", s, ErrForeignNote, err)
		}
	}
	return n, nil
}

// noteError tells a later format ("wc2") from a foreign note.
func noteError(first string) error {
	version, ours := strings.CutPrefix(first, notePrefix)
	if ours && version != "" && strings.Trim(version, "0123456789") == "" {
		return ErrNewerFormat
	}
	return ErrForeignNote
}
