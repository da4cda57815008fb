package membership

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
)

// What a member says about itself when it joins: the user data of its
// subscription (ConsumerProtocolSubscription). The leader of the group balances
// by it, and DescribeGroups shows it while the group is stable.
//
//	4 bytes  77 63 6c 6b, "wclk", by which it is told from the user data of other programs
//	byte     1, the format
//	fields   tags strictly ascending, for each
//	  uvarint  tag
//	  bytes    content
//
// As in a timer's extensions, a reader that does not know a tag skips the field if the tag is even,
// and takes the whole user data for that of a newer version if it is odd. The fields:
//
//	01  text     the process; 1 to 64 bytes
//	02  views    the changelogs that the process has a local view of: topics
//	             strictly ascending by name, for each
//	      text     request topic
//	      uvarint  number of partitions, at least 1; ascending, for each
//	        uvarint  number of the partition, less that of the one before, less 1
//	        uvarint  position in the changelog that the view stands at
//
// A value has exactly one encoding.
const (
	userDataMagic  = "wclk"
	userDataFormat = 1

	tagProcess = 1
	tagViews   = 2
	mustKnow   = 1 // the bit of a tag

	maxProcess = 64
	// maxViewBytes limits the encoded views. The user data of all members lie in one
	// record of the group, which must not exceed the limit of __consumer_offsets (1 MiB).
	maxViewBytes = 16 << 10
)

var (
	errNoUserData    = errors.New("no user data of waterclock")
	errNewerUserData = errors.New("user data of a newer version")
	errBadUserData   = errors.New("user data is corrupt")
)

// View is a local view of a changelog partition.
type View struct {
	Topic     string // the request topic
	Partition int32
	Position  int64 // of the next changelog record that it lacks; never negative
}

// userData is what a member says about itself.
type userData struct {
	process string
	views   []View // ordered by topic and partition, each once
}

// newUserData keeps the first views, as many as there is room for.
func newUserData(process string, views []View) userData {
	d := userData{process: process}
	topics, room := make(map[string]bool), maxViewBytes
	for _, v := range views {
		room -= binary.MaxVarintLen32 + binary.MaxVarintLen64
		if !topics[v.Topic] {
			topics[v.Topic] = true
			room -= len(v.Topic) + 2*binary.MaxVarintLen32
		}
		if room < 0 {
			break
		}
		d.views = append(d.views, v)
	}
	slices.SortFunc(d.views, compareViews)
	return d
}

func compareViews(a, b View) int {
	return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
}

func (d *userData) encode() []byte {
	b := appendBytes(append(appendHeader(nil), tagProcess), []byte(d.process))
	var views []byte
	for rest := d.views; len(rest) > 0; {
		n := slices.IndexFunc(rest, func(v View) bool { return v.Topic != rest[0].Topic })
		if n < 0 {
			n = len(rest)
		}
		views = binary.AppendUvarint(appendBytes(views, []byte(rest[0].Topic)), uint64(n))
		before := int32(-1)
		for _, v := range rest[:n] {
			views = binary.AppendUvarint(views, uint64(v.Partition-before-1))
			views = binary.AppendUvarint(views, uint64(v.Position))
			before = v.Partition
		}
		rest = rest[n:]
	}
	if len(views) > 0 {
		b = appendBytes(append(b, tagViews), views)
	}
	return b
}

func appendHeader(b []byte) []byte { return append(append(b, userDataMagic...), userDataFormat) }

func appendBytes(b, content []byte) []byte {
	return append(binary.AppendUvarint(b, uint64(len(content))), content...)
}

// decodeUserData decodes the user data of a member. Errors are, or wrap,
// errNoUserData, errNewerUserData or errBadUserData. The result takes at most some ten
// times the memory of b.
func decodeUserData(b []byte) (d userData, err error) {
	r := userDataReader{}
	skipped, err := eachField(b, func(tag uint64, content []byte) bool {
		switch tag {
		case tagProcess:
			d.process = string(content)
		case tagViews:
			d.views = r.views(content)
		default:
			return false
		}
		return true
	})
	if err = cmp.Or(err, r.err); err != nil {
		return userData{}, err
	}
	if d.process == "" || len(d.process) > maxProcess || !skipped && !bytes.Equal(d.encode(), b) {
		return userData{}, errBadUserData
	}
	return d, nil
}

// eachField calls known for each field of user data until it meets an error. known returns false for a tag that it
// does not know. skipped reports that there was one that may be skipped. Errors are, or wrap,
// errNoUserData, errNewerUserData or errBadUserData.
func eachField(b []byte, known func(tag uint64, content []byte) bool) (skipped bool, err error) {
	rest, ours := bytes.CutPrefix(b, []byte(userDataMagic))
	switch {
	case !ours:
		return false, errNoUserData
	case len(rest) == 0:
		return false, fmt.Errorf("no format: %w", errBadUserData)
	case rest[0] > userDataFormat:
		return false, fmt.Errorf("format %d: %w", rest[0], errNewerUserData)
	}
	r := userDataReader{rest: rest[1:]}
	for len(r.rest) > 0 {
		tag := r.uvarint()
		content := r.bytes()
		switch {
		case r.err != nil:
			return skipped, r.err
		case known(tag, content):
		case tag&mustKnow != 0:
			return skipped, fmt.Errorf("field %d: %w", tag, errNewerUserData)
		default:
			skipped = true
		}
	}
	return skipped, nil
}

// userDataReader reads fields; the first error stays.
type userDataReader struct {
	rest []byte
	err  error
}

func (r *userDataReader) fail() { r.rest, r.err = nil, errBadUserData }

func (r *userDataReader) uvarint() uint64 {
	x, n := binary.Uvarint(r.rest)
	if n <= 0 {
		r.fail()
		return 0
	}
	r.rest = r.rest[n:]
	return x
}

func (r *userDataReader) bytes() []byte {
	n := r.uvarint()
	if n > uint64(len(r.rest)) {
		r.fail()
		return nil
	}
	content := r.rest[:n]
	r.rest = r.rest[n:]
	return content
}

// views reads the content of the field.
func (r *userDataReader) views(content []byte) (vs []View) {
	in := userDataReader{rest: content}
	for in.err == nil && len(in.rest) > 0 {
		topic, n := string(in.bytes()), in.uvarint()
		if n == 0 || n > uint64(len(in.rest)) || len(vs) > 0 && topic <= vs[len(vs)-1].Topic {
			in.fail()
			break
		}
		next := uint64(0)
		for range n {
			partition, position := next+in.uvarint(), in.uvarint()
			if partition > 1<<31-1 || position > 1<<63-1 || partition < next {
				in.fail()
				break
			}
			vs = append(vs, View{topic, int32(partition), int64(position)})
			next = partition + 1
		}
	}
	if in.err != nil {
		r.fail()
		return nil
	}
	return vs
}
