package targets

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waterclock/waterclock/internal/kit/beats"
	"github.com/waterclock/waterclock/internal/timer"
)

const (
	// missingAfter is how long a topic must be unknown to all brokers that are asked until it counts as missing.
	missingAfter = 10 * time.Second
	// verdictAgain is the age at which the verdict that a topic cannot be used is looked up again.
	verdictAgain = time.Second
	// If a leader rejects a topic as unknown although metadata shows it, the topic is not used for a while, which
	// doubles from refutedMin to refutedMax. After refutedKept it begins with refutedMin again.
	refutedMin  = 50 * time.Millisecond
	refutedMax  = 10 * time.Second
	refutedKept = time.Minute
	// lookupTimeout bounds one look-up.
	lookupTimeout = 2 * time.Second
	// maxExamined bounds the kept topics that are not known to exist or cannot be used. Up to half of them may be
	// topics that were only looked up; the others have waiting emissions.
	maxExamined = 1000
	// newcomersPause is the pause between two look-ups of newcomers while there is no room to keep them.
	newcomersPause = 100 * time.Millisecond
	// DefaultBatchMaxBytes is Kafka's default for max.message.bytes.
	DefaultBatchMaxBytes = 1_048_588
)

// Brokers answer questions about topics; a *kgo.Client is Brokers.
type Brokers interface {
	kmsg.Requestor
	DiscoveredBrokers() []*kgo.Broker
}

// MetadataOptions are the settings of Metadata.
type MetadataOptions struct {
	// MissingAfter is how long a topic must be missing until that is a verdict; 0 is the default, 10 s.
	MissingAfter time.Duration
	// Now is the clock; nil is the machine's.
	Now func() time.Time
	// Reach tells which brokers are unreachable; nil: none. The caller calls ReachabilityChanged when that changes.
	Reach Reach
	// Changed, if not nil, is called without a lock when partitions may have got other leaders.
	Changed func()
}

// Metadata caches the metadata of target topics. No caller waits for a broker: Run looks up unknown topics, and the
// caller comes again.
//
// # Missing topics
//
// A broker that is behind says that a new topic does not exist. So if one broker does not know a topic, others are
// asked too. Only if none of them has known it for missingAfter does the topic count as missing; until then it is
// simply not known. That state ends with an answer that has the topic, or with the verdict. A broker that is cut off
// could prolong it, but it is not asked any more once the controller has fenced it.
//
// The opposite happens too: metadata shows a topic that the leader of its partition does not know (Refuted). Then the
// topic is not known until it has been looked up again, after a pause that doubles.
//
// # Many missing topics
//
// Requests can name as many topics as they like, and each name that does not exist takes memory and requests until that
// is known. So at most maxExamined such topics are kept at a time. Emissions for further ones all wait for Unexamined
// until their Turn comes: the topic is known, or a place is free, since inUse drops unused topics. A topic that a
// caller names is looked up even without a place. If it exists it is kept; if not, the answer is forgotten. So an
// existing topic does not wait behind all the missing ones.
//
// Lookups for each timer take no lock if all is well: see snapshot.
//
// mu guards the fields below it. Requests are made without it.
type Metadata struct {
	Leaders *Leaders // of all partitions that are in use
	// Moved, if not nil, is called without a lock for each partition that lost its leader or has had another one since
	// the last answer. Set it before Run.
	Moved func(timer.TopicPartition)
	// AutoCreate lets the broker create topics on first use, if it is configured to (waterclock dev). Set it before
	// Run.
	AutoCreate bool

	client   Brokers
	o        MetadataOptions
	answered func() // if not nil, called without a lock after each answer
	known    atomic.Pointer[snapshot]

	mu       sync.Mutex
	topics   map[string]*cachedTopic
	versions int64     // the last version given
	examined int       // of topics, as publish has counted them, and Examine since
	reaped   time.Time // when inUse last made room for others
	wanted   wanted
}

// NewMetadata returns a cache that asks through cl.
func NewMetadata(cl Brokers, o MetadataOptions) *Metadata {
	if o.MissingAfter == 0 {
		o.MissingAfter = missingAfter
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Changed == nil {
		o.Changed = func() {}
	}
	t := &Metadata{
		Leaders: NewLeaders(o.Reach, o.Now),
		client:  cl, o: o, topics: make(map[string]*cachedTopic), wanted: newWanted(),
	}
	t.known.Store(&snapshot{})
	return t
}

// MissingAfter returns how long a topic must be missing until that is a verdict.
func (m *Metadata) MissingAfter() time.Duration { return m.o.MissingAfter }

// Cached returns the known metadata of a topic. known.Err is the brokers' verdict. If it is not ok, the topic has to be
// looked up first: see Prefetch.
func (m *Metadata) Cached(topic string) (known TopicInfo, ok bool) {
	if k := (*m.known.Load())[topic]; k != nil {
		k.use()
		return k.TopicInfo, true
	}
	now := m.o.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.topics[topic]
	if e == nil {
		return TopicInfo{}, false
	}
	e.use(now)
	if (e.Err != nil || !e.beyond.IsZero()) && now.Sub(e.fetched) > verdictAgain {
		m.want(topic) // refreshes the verdict, so that it does not get too old
	}
	if !e.usable(now, m.o.MissingAfter) {
		return TopicInfo{}, false
	}
	return e.TopicInfo, true
}

// Prefetch makes Run look up an unknown topic.
func (m *Metadata) Prefetch(topic string) {
	if (*m.known.Load())[topic] != nil {
		return
	}
	now := m.o.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	if e := m.topics[topic]; e != nil && !e.fetched.IsZero() && (e.Err == nil || now.Sub(e.fetched) < verdictAgain) {
		return
	}
	m.want(topic)
}

// want makes Run look up a topic. The lock is held.
func (m *Metadata) want(topic string) { m.wanted.add(topic, m.topics[topic] != nil) }

// Stale notes that a topic's limits were proved wrong. They are used until they have been looked up again.
func (m *Metadata) Stale(topic string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.want(topic)
}

// Refuted notes that a topic is unknown to the leader of one of its partitions.
func (m *Metadata) Refuted(topic string) {
	now := m.o.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.want(topic)
	e := m.topics[topic]
	if e == nil {
		return
	}
	if now.Sub(e.refutedAt) > refutedKept {
		e.refuted = 0
	}
	if e.notBefore = now; e.refuted > 0 {
		e.notBefore = now.Add(min(refutedMin<<min(e.refuted, 10), refutedMax))
	}
	e.refuted++
	e.refutedAt, e.fetched = now, time.Time{}
	m.publish()
}

// Version changes whenever a client must know of it before it writes to the topic: the topic was recreated, gained
// partitions or has another size limit.
func (m *Metadata) Version(topic string) int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	if e := m.topics[topic]; e != nil {
		return e.version
	}
	return 0
}

// Leadership says whether a partition has a leader, by the last answer.
type Leadership uint8

// The states of leadership.
const (
	Led         Leadership = iota
	Leaderless             // or not known
	NoPartition            // or no such topic
	Forbidden              // the service may not use the topic
)

// State says whether a partition has a leader, by the last answer.
func (m *Metadata) State(p timer.TopicPartition) Leadership {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.topics[p.Topic]
	switch {
	case e == nil, e.Err == nil && len(e.Leader) == 0:
		return Leaderless // not known
	case e.Err != nil && !e.usable(m.o.Now(), m.o.MissingAfter):
		return Leaderless // no verdict yet
	case e.Err != nil && !Gone(e.Err):
		return Forbidden
	case e.Err != nil:
		return NoPartition
	case int(p.Partition) >= len(e.Leader):
		if m.lacks(e) {
			return NoPartition
		}
		return Leaderless
	case !e.Leader[p.Partition], m.Leaders.leaderUnreachable(p):
		return Leaderless
	}
	return Led
}

// Lacks reports whether a known topic certainly does not have a partition.
func (m *Metadata) Lacks(p timer.TopicPartition) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.topics[p.Topic]
	return e != nil && e.Err == nil && len(e.Leader) > 0 && int(p.Partition) >= len(e.Leader) && m.lacks(e)
}

// doubts reports whether timers for a partition that the topic does not have must keep waiting: the topic has as many
// partitions as when one of them was first looked up, and there is no verdict yet.
func (m *Metadata) doubts(topic string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.topics[topic]
	return e != nil && !e.beyond.IsZero() && !m.lacks(e)
}

// lacks reports whether it is certain that a topic does not have a partition that a caller asked for. Like a missing
// topic, that must hold for MissingAfter. The lock is held.
func (m *Metadata) lacks(e *cachedTopic) bool {
	now := m.o.Now()
	e.asked = now
	if e.beyond.IsZero() {
		e.beyond = now
		m.publish()
	}
	return now.Sub(e.beyond) >= m.o.MissingAfter && now.Sub(e.fetched) <= verdictKept
}

// BatchMaxBytes is the largest record batch that a topic takes, as far as it is known.
func (m *Metadata) BatchMaxBytes(topic string) int32 {
	m.mu.Lock()
	defer m.mu.Unlock()
	if e := m.topics[topic]; e != nil && e.maxBytes > 0 {
		return e.maxBytes
	}
	return DefaultBatchMaxBytes
}

// SetBatchMaxBytes sets the limit of one of the service's own topics.
func (m *Metadata) SetBatchMaxBytes(topic string, n int32) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.topics[topic] = &cachedTopic{maxBytes: n, used: m.o.Now().Add(100 * 365 * 24 * time.Hour)}
	m.publish()
}

// publish renews the snapshot, and counts the topics that are not known. The lock is held.
func (m *Metadata) publish() {
	now := m.o.Now()
	m.known.Load().noteUsed(m.topics, now)
	known := make(snapshot, len(m.topics))
	m.examined = 0
	for name, e := range m.topics {
		if e.unconfirmed() {
			m.examined++
		}
		if e.Err == nil && e.beyond.IsZero() && e.usable(now, m.o.MissingAfter) {
			known[name] = &snapshotTopic{TopicInfo: e.TopicInfo}
		}
	}
	m.known.Store(&known)
}

const (
	// maxWanted bounds the topics of one look-up.
	maxWanted = 1000
	// maxNewcomers bounds the newcomers that wait for a look-up.
	maxNewcomers = 10_000
)

// wanted holds the topics that Run looks up next. Metadata.mu guards it.
type wanted struct {
	all       bool                // everything in use
	topics    map[string]struct{} // that are cached
	newcomers map[string]struct{} // that are not
	wake      beats.Signal        // a topic was added
}

func newWanted() wanted {
	return wanted{topics: make(map[string]struct{}), newcomers: make(map[string]struct{}), wake: beats.NewSignal()}
}

// add adds a topic. If there are too many newcomers it adds nothing: a caller that needs the topic comes again.
func (w *wanted) add(topic string, cached bool) {
	switch {
	case cached:
		w.topics[strings.Clone(topic)] = struct{}{}
	case len(w.newcomers) < maxNewcomers:
		w.newcomers[strings.Clone(topic)] = struct{}{}
	default:
		return
	}
	w.wake.Send()
}

// addAll adds everything that is in use.
func (w *wanted) addAll() {
	w.all = true
	w.wake.Send()
}

// take returns the topics to look up now. It returns no more newcomers than fit in one look-up, because the leaders of
// cached topics are more urgent. all: everything in use too.
func (w *wanted) take() (names []string, all bool) {
	names = slices.Collect(maps.Keys(w.topics))
	clear(w.topics)
	n := 0
	for name := range w.newcomers {
		if n++; n > maxWanted {
			w.wake.Send()
			break
		}
		names = append(names, name)
		delete(w.newcomers, name)
	}
	all, w.all = w.all, false
	return names, all
}
