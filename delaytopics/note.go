package delaytopics

import (
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
)

// MaxNoteBytes is how long a broker lets the metadata of an offset commit be
// (offset.metadata.max.bytes; Kafka counts UTF-16 units, a note is ASCII).
const MaxNoteBytes = 4096

const (
	notePrefix = "wc"
	noteFormat = "wc1"
	noteStep   = "step="
	noteLast   = "last="
	noteCount  = "partitions="
)

// ErrForeignNote says that an offset was not committed by waterclock: its
// metadata is empty or somebody else's.
var ErrForeignNote = errors.New("offset was committed by another program")

// CommitNote is the metadata string of each offset that a step commits: it
// tells afterwards whether a step of doubtful outcome was committed.
//
//	wc1 step=STEP last=LAST partitions=COUNT
//
// Both names are %-escaped as in URLs, so they hold neither space nor "=";
// "last=" and "partitions=" are left out where Last is empty and Partitions 0,
// and fields with other names are passed over.
type CommitNote struct {
	Step string // the step that committed the offset
	Last string // in a claim's note: the last step that was not a claim
	// Partitions of the request topic as the step's owner knew it; 0: not said.
	Partitions int32
}

// String returns the note, ASCII. It is below MaxNoteBytes if the names have at
// most 600 bytes each.
func (n CommitNote) String() string {
	s := noteFormat + " " + noteStep + url.QueryEscape(n.Step)
	if n.Last != "" {
		s += " " + noteLast + url.QueryEscape(n.Last)
	}
	if n.Partitions > 0 {
		s += " " + noteCount + strconv.Itoa(int(n.Partitions))
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
