package wire

import (
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
)

const (
	notePrefix = "wc"
	noteFormat = "wc1"
	noteStep   = "step"
	noteLast   = "last"
	noteCount  = "partitions"
	noteAPI    = "api"
)

// ErrForeignNote says that another program committed an offset: the metadata is not a note.
var ErrForeignNote = errors.New("offset was committed by another program")

// CommitNote is the metadata string of each offset that a step commits. It tells later whether a step with an
// unknown outcome was committed.
//
//	wc1 step=STEP last=LAST partitions=COUNT api=URL
//
// Names and the URL are %-escaped as in a URL's query, so they contain neither spaces nor "=". Empty fields are left
// out, except for step. A reader skips fields that it does not know.
type CommitNote struct {
	Step string // the step that committed the offset
	Last string // in a claim's note: the last step that was not a claim
	// Partitions is the partition count of the request topic, as the step's owner knew it; 0: not known.
	Partitions int32
	// API is the URL at which other instances reach the owner's API; empty: it has none.
	API string
}

// Process is the ID of the owner's process, with which the name of a step begins.
func (c CommitNote) Process() string {
	process, _, _ := strings.Cut(c.Step, "/")
	return process
}

// String returns the note in ASCII. It is shorter than 4096 bytes, the brokers' default of
// offset.metadata.max.bytes, if the names have at most 600 bytes each.
func (c CommitNote) String() string {
	s := noteFormat + " " + noteStep + "=" + url.QueryEscape(c.Step)
	if c.Last != "" {
		s += " " + noteLast + "=" + url.QueryEscape(c.Last)
	}
	if c.Partitions > 0 {
		s += " " + noteCount + "=" + strconv.Itoa(int(c.Partitions))
	}
	if c.API != "" {
		s += " " + noteAPI + "=" + url.QueryEscape(c.API)
	}
	return s
}

// ParseCommitNote reads the metadata of a committed offset. Errors wrap ErrForeignNote or ErrNewerFormat.
func ParseCommitNote(s string) (n CommitNote, err error) {
	format, rest, _ := strings.Cut(s, " ")
	if format != noteFormat {
		return n, fmt.Errorf("parse note %.40q: %w", s, noteError(format))
	}
	// The fields are those of a URL's query, with a space for each &. Unknown ones are skipped.
	fields, err := url.ParseQuery(strings.ReplaceAll(rest, " ", "&"))
	var count uint64
	if err == nil && fields.Has(noteCount) {
		count, err = strconv.ParseUint(fields.Get(noteCount), 10, 31)
	}
	if err != nil {
		return n, fmt.Errorf("parse note %.40q: %w: %w", s, ErrForeignNote, err)
	}
	return CommitNote{fields.Get(noteStep), fields.Get(noteLast), int32(count), fields.Get(noteAPI)}, nil
}

// noteError distinguishes a later format ("wc2") from a foreign note.
func noteError(first string) error {
	version, ours := strings.CutPrefix(first, notePrefix)
	if ours && version != "" && strings.Trim(version, "0123456789") == "" {
		return ErrNewerFormat
	}
	return ErrForeignNote
}
