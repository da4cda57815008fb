package membership

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"slices"
)

// The user data of a member's subscription (ConsumerProtocolSubscription) describes it when it joins. The leader of the
// group balances by it, and DescribeGroups shows it while the group is stable.
//
//	4 bytes  77 63 6c 6b, "wclk", which distinguishes it from the user data of other programs
//	byte     1, the format
//	fields   tags strictly ascending, for each
//	  uvarint  tag
//	  bytes    content
//
// As in a timer's extensions, a reader that does not know a tag skips the field if the tag is even, and takes the user
// data to be of a newer version if it is odd. The fields:
//
//	01  text     the process; 1 to 64 bytes
//	02  views    the changelogs that the process has a local view of: topics
//	             strictly ascending by name, for each
//	      text     request topic
//	      uvarint  number of partitions, at least 1; ascending, for each
//	        uvarint  number of the partition, less that of the one before, less 1
//	        uvarint  position in the changelog that the view stands at
//	04  copies   the changelogs that the process follows; present, even if empty, if it follows
//	             the plan of the leader. As 02, and for each partition
//	        uvarint  1 if the copy has caught up, else 0
//	06  leaving  empty: the process hands its partitions over and will leave
//	08  settings a digest of the settings by which the process judges requests (config.Digest)
//
// The user data of an assignment begin in the same way and have other fields:
//
//	02  follow   the changelogs that the member is to follow: as 02 above, without the position
//	        uvarint  1 if the member is to own the partition once it has caught up, else 0
//	04  again    empty: a partition waits for its owner to give it up, so there is another round immediately
//	06  room     uvarint, how many bytes views and copies may have at the next join; see room. Without it: maxRoom
//
// A value has exactly one encoding.
const (
	userDataMagic  = "wclk"
	userDataFormat = 1

	tagProcess  = 1
	tagViews    = 2
	tagCopies   = 4
	tagLeaving  = 6
	tagSettings = 8
	tagFollow   = 2 // of an assignment
	tagAgain    = 4 // of an assignment
	tagRoom     = 6 // of an assignment
	mustKnow    = 1 // the bit of a tag

	maxProcess = 64
	// maxViewBytes limits the encoded views, and maxCopyBytes the encoded copies. The user data of all members together
	// is bounded by room.
	maxViewBytes = 16 << 10
	maxCopyBytes = 32 << 10
	// maxFollowed is how many partitions a member follows at most: it has to name each of them
	// when it joins.
	maxFollowed = 1000
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

// Copy is a local view of a changelog that the process follows without owning the partition.
type Copy struct {
	View
	CaughtUp bool // it has everything that was in the changelog a few seconds ago
}

// Follow is a partition that the leader of the group tells a member to follow.
type Follow struct {
	Topic     string
	Partition int32
	Next      bool // the member will own it once it has caught up
}

// userData describes a member.
type userData struct {
	process  string
	views    []View // ordered by topic and partition, each once
	copies   []Copy // in the same order
	follows  bool   // the process follows the copies that the leader assigns
	leaving  bool
	settings []byte // digest
}

// newUserData keeps the first views, as many as fit into a number of bytes.
func newUserData(process string, views []View, room int) userData {
	d := userData{process: process}
	f := newFitting(min(room, maxViewBytes))
	for i := range views {
		if !f.add(&views[i]) {
			break
		}
		d.views = append(d.views, views[i])
	}
	slices.SortFunc(d.views, compareViews)
	return d
}

// follow adds the copies of the process: as many as fit into a number of bytes, and first those that have caught up,
// because a partition may move there. It returns how many bytes that takes at most.
func (u *userData) follow(copies []Copy, room int) int {
	copies = slices.Clone(copies)
	slices.SortStableFunc(copies, func(a, b Copy) int { return cmp.Compare(flag(b.CaughtUp), flag(a.CaughtUp)) })
	limit := min(room, maxCopyBytes)
	f := newFitting(limit)
	n := 0
	for n < min(len(copies), maxFollowed) && f.add(&copies[n].View) {
		n++
	}
	u.follows, u.copies = true, copies[:n]
	slices.SortFunc(u.copies, func(a, b Copy) int { return compareViews(a.View, b.View) })
	return max(0, limit-f.room)
}

// fitting says how many partitions fit into a list of that many bytes.
type fitting struct {
	room   int
	topics map[string]bool
}

func newFitting(room int) fitting {
	return fitting{room: room - 1 - binary.MaxVarintLen32, topics: make(map[string]bool)} // tag and length
}

// add reports whether one more partition fits. It takes at most: its number, its position, a flag, and the name of a
// topic that was not there, with the number of its partitions.
func (f *fitting) add(v *View) bool {
	n := uvarintBytes(uint64(v.Partition)) + uvarintBytes(uint64(v.Position)) + 1
	if !f.topics[v.Topic] {
		n += len(v.Topic) + 2*binary.MaxVarintLen32
	}
	if n > f.room {
		return false
	}
	f.topics[v.Topic] = true
	f.room -= n
	return true
}

// uvarintBytes returns how many bytes a uvarint has.
func uvarintBytes(x uint64) int { return (bits.Len64(x|1) + 6) / 7 }

func compareViews(a, b View) int {
	return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
}

func (u *userData) encode() []byte {
	b := appendBytes(append(appendHeader(nil), tagProcess), []byte(u.process))
	if len(u.views) > 0 {
		b = appendBytes(append(b, tagViews), appendListed(len(u.views), 1, func(i int) listed {
			return listed{u.views[i].Topic, u.views[i].Partition, [2]uint64{uint64(u.views[i].Position)}}
		}))
	}
	if u.follows {
		b = appendBytes(append(b, tagCopies), appendListed(len(u.copies), 2, func(i int) listed {
			c := u.copies[i]
			return listed{c.Topic, c.Partition, [2]uint64{uint64(c.Position), flag(c.CaughtUp)}}
		}))
	}
	if u.leaving {
		b = appendBytes(append(b, tagLeaving), nil)
	}
	if len(u.settings) > 0 {
		b = appendBytes(append(b, tagSettings), u.settings)
	}
	return b
}

func flag(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}

// appendFollow appends the field of an assignment, if there is anything to follow. The order is that of views.
func appendFollow(b []byte, follow []Follow) []byte {
	if len(follow) == 0 {
		return b
	}
	return appendBytes(append(b, tagFollow), appendListed(len(follow), 1, func(i int) listed {
		return listed{follow[i].Topic, follow[i].Partition, [2]uint64{flag(follow[i].Next)}}
	}))
}

// listed is a partition in a field that lists partitions, with its values.
type listed struct {
	topic     string
	partition int32
	values    [2]uint64 // as many as the field has
}

// appendListed encodes n partitions, ordered by topic and number, each with the given number of values.
func appendListed(n, values int, at func(i int) listed) (b []byte) {
	for i := 0; i < n; {
		topic, end := at(i).topic, i+1
		for end < n && at(end).topic == topic {
			end++
		}
		b = binary.AppendUvarint(appendBytes(b, []byte(topic)), uint64(end-i))
		before := int32(-1)
		for ; i < end; i++ {
			x := at(i)
			b = binary.AppendUvarint(b, uint64(x.partition-before-1))
			for _, value := range x.values[:values] {
				b = binary.AppendUvarint(b, value)
			}
			before = x.partition
		}
	}
	return b
}

func appendHeader(b []byte) []byte { return append(append(b, userDataMagic...), userDataFormat) }

func appendBytes(b, content []byte) []byte {
	return append(binary.AppendUvarint(b, uint64(len(content))), content...)
}

// decodeUserData decodes the user data of a member. Errors are, or wrap, errNoUserData, errNewerUserData or
// errBadUserData. The result takes at most about ten times the memory of b.
func decodeUserData(b []byte) (d userData, err error) {
	r := userDataReader{}
	skipped, err := eachField(b, func(tag uint64, content []byte) bool {
		switch tag {
		case tagProcess:
			d.process = string(content)
		case tagViews:
			for _, x := range r.listed(content, maxPosition) {
				d.views = append(d.views, View{x.topic, x.partition, int64(x.values[0])})
			}
		case tagCopies:
			d.follows = true
			for _, x := range r.listed(content, maxPosition, 1) {
				d.copies = append(d.copies, Copy{View{x.topic, x.partition, int64(x.values[0])}, x.values[1] == 1})
			}
		case tagLeaving:
			d.leaving = true
		case tagSettings:
			d.settings = content
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

// userDataReader reads fields. It keeps the first error.
type userDataReader struct {
	rest []byte
	err  error
}

func (u *userDataReader) fail() { u.rest, u.err = nil, errBadUserData }

func (u *userDataReader) uvarint() uint64 {
	x, n := binary.Uvarint(u.rest)
	if n <= 0 {
		u.fail()
		return 0
	}
	u.rest = u.rest[n:]
	return x
}

func (u *userDataReader) bytes() []byte {
	n := u.uvarint()
	if n > uint64(len(u.rest)) {
		u.fail()
		return nil
	}
	content := u.rest[:n]
	u.rest = u.rest[n:]
	return content
}

// maxPosition is the largest offset.
const maxPosition = 1<<63 - 1

// listed reads the content of a field that lists partitions. Each partition has one value for each limit, and no value
// is larger than its limit.
func (u *userDataReader) listed(content []byte, limits ...uint64) (all []listed) {
	in := userDataReader{rest: content}
	for in.err == nil && len(in.rest) > 0 {
		topic, n := string(in.bytes()), in.uvarint()
		if n == 0 || n > uint64(len(in.rest)) || len(all) > 0 && topic <= all[len(all)-1].topic {
			in.fail()
			break
		}
		next := uint64(0)
		for range n {
			partition := next + in.uvarint()
			x := listed{topic: topic, partition: int32(partition)}
			for i, limit := range limits {
				if x.values[i] = in.uvarint(); x.values[i] > limit {
					in.fail()
				}
			}
			if partition > 1<<31-1 || partition < next || in.err != nil {
				in.fail()
				break
			}
			all = append(all, x)
			next = partition + 1
		}
	}
	if in.err != nil {
		u.fail()
		return nil
	}
	return all
}
