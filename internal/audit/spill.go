package audit

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	"github.com/waterclock/waterclock/internal/audit/history"
)

// spill is the database of facts. Keys sort by the request topic and the ID that a fact is about:
//
//	| request topic | 0 | length of the ID u16 | ID | kind (1) | topic | 0 | partition u32 | offset u64 |
//
// The last three say where the record is. For a pending timer the offset is 0, so that later records replace earlier
// ones. Names of topics have no zero bytes. Keys that begin with one are about the audit:
//
//	| 0 'p' stage u8 | topic | 0 | partition u32 | offset 0 u64 |  offset to read next
//	| 0 's' | request topic | 0 | partition u32 | offset u64 |     checkpoint or claim
//	| 0 't' | topic |                                             a target of requests
//	| 0 'u' | topic |                                             a target of requests that only other settings accept
//	| 0 'j' |                                                     the plan, as JSON
type spill struct {
	db    *pebble.DB
	unref func()
}

// The kinds of facts.
const (
	requestKind  byte = 'a'
	emissionKind byte = 'b'
	letterKind   byte = 'c'
	eventKind    byte = 'd'
	pendingKind  byte = 'e'
	movingKind   byte = 'f'
)

// marker is a file that tells the directory of an audit from any other.
const marker = "waterclock-audit"

func open(dir string) (*spill, error) {
	if err := claim(dir); err != nil {
		return nil, err
	}
	o, unref := options()
	db, err := pebble.Open(dir, o)
	if err != nil {
		unref()
		return nil, fmt.Errorf("open %s: %w", dir, err)
	}
	return &spill{db: db, unref: unref}, nil
}

// claim marks a directory as an audit's. It must be empty, missing or marked already.
func claim(dir string) error {
	in, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		err = os.MkdirAll(dir, 0o700)
	}
	if err != nil {
		return fmt.Errorf("make a directory for the audit: %w", err)
	}
	if len(in) > 0 && !slices.ContainsFunc(in, func(e fs.DirEntry) bool { return e.Name() == marker }) {
		return fmt.Errorf("%s is not empty: an audit needs a directory of its own", dir)
	}
	return os.WriteFile(filepath.Join(dir, marker),
		[]byte("waterclock audit keeps what it has read here. It can be removed.\n"), 0o600)
}

// close flushes, so that another audit can continue from here.
func (s *spill) close() error {
	err := errors.Join(s.db.Flush(), s.db.Close())
	s.unref()
	return err
}

// factKey returns the key of a fact: the ID of a request topic that it is about, and the record that it comes from.
func factKey(requests, id string, kind byte, at history.Place) []byte {
	k := append(make([]byte, 0, len(requests)+len(id)+len(at.Topic)+17), requests...)
	k = binary.BigEndian.AppendUint16(append(k, 0), uint16(len(id)))
	return appendPlace(append(append(k, id...), kind), at)
}

func appendPlace(k []byte, at history.Place) []byte {
	k = binary.BigEndian.AppendUint32(append(append(k, at.Topic...), 0), uint32(at.Partition))
	return binary.BigEndian.AppendUint64(k, uint64(at.Offset))
}

// aboutOf returns the beginning of a fact's key, up to the ID.
func aboutOf(key []byte) []byte {
	topic := bytes.IndexByte(key, 0)
	return key[:topic+3+int(binary.BigEndian.Uint16(key[topic+1:]))]
}

// placeOf reads the rest of a fact's key.
func placeOf(tail []byte, known *names) (kind byte, at history.Place) {
	topic, place, _ := bytes.Cut(tail[1:], []byte{0})
	return tail[0], history.Place{
		Topic:     known.of(topic),
		Partition: int32(binary.BigEndian.Uint32(place)),
		Offset:    int64(binary.BigEndian.Uint64(place[4:])),
	}
}

// positionKey is the key of the position up to which a log was read in a stage.
func positionKey(stage int, log history.Log) []byte {
	return appendPlace([]byte{0, 'p', byte(stage)}, history.Place{Topic: log.Topic, Partition: log.Partition})
}

// get returns a copy of a value; nil: there is none.
func (s *spill) get(key []byte) ([]byte, error) {
	value, closer, err := s.db.Get(key)
	switch {
	case errors.Is(err, pebble.ErrNotFound):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read the audit's directory: %w", err)
	}
	return append([]byte{}, value...), closer.Close()
}

func planKey() []byte { return []byte{0, 'j'} }

// savePlan stores the plan and all facts so far.
func (s *spill) savePlan(p *plan) error {
	text, err := json.Marshal(p)
	if err == nil {
		err = s.db.Set(planKey(), text, pebble.NoSync)
	}
	if err == nil {
		err = s.db.Flush()
	}
	if err != nil {
		return fmt.Errorf("store the audit's progress: %w", err)
	}
	return nil
}

// loadPlan returns the plan of an interrupted audit, or a new one. It fails if that audit had other options.
func (s *spill) loadPlan(options string) (*plan, error) {
	text, err := s.get(planKey())
	p := &plan{Options: options}
	if err != nil || text == nil {
		return p, err
	}
	if err := json.Unmarshal(text, p); err != nil {
		return nil, fmt.Errorf("%w: %w", errSpill, err)
	}
	if p.Options != options {
		return nil, errors.New("the directory belongs to an audit of other topics, of recreated ones, or of another " +
			"span: give the same --from, --until and --requests, or another directory")
	}
	return p, nil
}

// maxTargets bounds the targets of an audit. Requests may name topics that do not exist, and each is remembered,
// because its contents are unknown.
const maxTargets = 20_000

// targets returns the topics that requests name. A topic is true in others if all requests that name it are accepted
// only by other settings than those of the audit.
func (s *spill) targets() (names []string, others map[string]bool, err error) {
	it, err := s.db.NewIter(&pebble.IterOptions{LowerBound: targetKey(false, ""), UpperBound: []byte{0, 'u' + 1}})
	if err != nil {
		return nil, nil, fmt.Errorf("read the audit's targets: %w", err)
	}
	others = make(map[string]bool)
	for it.First(); it.Valid(); it.Next() {
		if len(names) == maxTargets {
			err = fmt.Errorf("requests name more than %d targets: audit fewer topics, or a shorter span", maxTargets)
			return nil, nil, errors.Join(err, it.Close())
		}
		name := string(it.Key()[2:])
		if _, twice := others[name]; !twice {
			names, others[name] = append(names, name), it.Key()[1] == 'u'
		}
	}
	return names, others, it.Close()
}

// targetKey is the key of a target. Targets of requests that only other settings accept come last: see targets.
func targetKey(other bool, topic string) []byte {
	kind := byte('t')
	if other {
		kind = 'u'
	}
	return append([]byte{0, kind}, topic...)
}

// stepKey is the key of a checkpoint or claim of a request partition.
func stepKey(log history.Log, offset int64) []byte {
	return appendPlace([]byte{0, 's'}, history.Place{Topic: log.Topic, Partition: log.Partition, Offset: offset})
}

// steps returns the last n checkpoints and claims of a request partition, or as many as it takes to find a checkpoint.
func (s *spill) steps(log history.Log, n int) (steps []history.ChangelogRecord, err error) {
	it, err := s.db.NewIter(&pebble.IterOptions{LowerBound: stepKey(log, 0), UpperBound: stepKey(log, math.MaxInt64)})
	if err != nil {
		return nil, fmt.Errorf("read the audit's steps: %w", err)
	}
	settled := false
	var known names
	for it.Last(); it.Valid() && (len(steps) < n || !settled) && err == nil; it.Prev() {
		var c history.ChangelogRecord
		if c, err = decode((*codec).step, it.Value(), &known); err == nil {
			c.Requests, c.Partition, c.Offset = log.Topic, log.Partition,
				int64(binary.BigEndian.Uint64(it.Key()[len(it.Key())-8:]))
			steps, settled = append(steps, c), settled || c.Kind == history.Checkpoint
		}
	}
	slices.Reverse(steps)
	return steps, errors.Join(err, it.Close())
}
