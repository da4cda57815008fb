// Package budget shares memory between the partitions of an instance. It only does the arithmetic: it holds no memory
// itself and never blocks a caller.
//
//	b := budget.New(64<<20, map[string]int32{"requests": 12})
//	a := b.Open("requests") // one account for each partition
//	full := a.Set(4096)     // the partition holds 4 KiB now
//	more := a.Room(512)     // bytes that it may still take; 0: it must wait
//
// # The rule
//
// A request topic is a tenant, and no tenant may hold up another with its backlog. An eighth of the memory is
// reserved, in equal parts for each topic, and within a topic for each partition. The rest is common, for partitions
// that need more than their reserve. It is divided by recent use, like the space in a step (package emitter). A
// partition is backlogged from when it reaches its limit until it is back at half of it; otherwise it is idle. Idle
// partitions keep their memory. The rest is divided evenly between the backlogged ones, first between topics, then
// between the partitions of one topic. So
//
//   - the total bounds the memory of all partitions, however many there are, except for records that are delivered in
//     one piece: a partition may grow only into free memory;
//   - if only one topic has a backlog, it gets everything except the other topics' reserves;
//   - a topic with a backlog, or with many partitions, leaves the others as much as it has itself. Memory that it
//     holds beyond that is not taken away: it gets no more until it is below, and everything it releases is free for
//     the others;
//   - no partition depends on another one that is stuck. A partition that holds nothing can always take something,
//     because its reserve is its own. So it makes progress with memory that it releases itself, even if others never
//     release the common memory. This is why no partition is notified when others release memory. A full partition
//     resumes when it has released memory. One that is not full, but has no room for its next record, retries soon
//     (partlog.roomPause).
package budget

import "sync"

const (
	// reserved is the divisor for the reserve: an eighth of the total.
	reserved = 8
	// Least is the smallest reserve of a partition, in bytes: one small entry. With very many partitions the sum of
	// all reserves may exceed the total.
	Least = 1 << 10
)

// Budget is memory that partitions share. It is safe for concurrent use.
type Budget struct {
	common int64 // bytes for partitions that need more than their reserve

	mu         sync.Mutex // guards the fields below, in accounts too
	topics     map[string]*topic
	extra      int64 // held beyond the reserves
	idle       int64 // the part of extra that idle accounts hold
	backlogged int   // topics that have backlogged accounts
}

// topic holds the state that the accounts of one topic share.
type topic struct {
	reserved   int64 // bytes, for each partition
	backlogged int   // accounts
	// large is the account that Room has allowed a piece for which there was no memory; nil if there is none. See
	// Room.
	large *Account
}

// Account tracks the memory of one partition.
type Account struct {
	budget *Budget
	topic  *topic
	used   int64
	full   bool // backlogged: it reached its limit and is not back at half of it
	closed bool
}

// New returns a budget of total bytes. partitions has the partition count of each topic.
func New(total int64, partitions map[string]int32) *Budget {
	b := &Budget{common: total - total/reserved, topics: make(map[string]*topic)}
	for name, n := range partitions {
		b.topics[name] = &topic{reserved: max(Least, total/reserved/int64(len(partitions))/int64(max(1, n)))}
	}
	return b
}

// Open returns an empty account for a partition of one of the topics.
func (b *Budget) Open(topic string) *Account {
	return &Account{budget: b, topic: b.topics[topic]}
}

// Alone returns an account that shares its budget with no other.
func Alone(total int64) *Account {
	return &Account{budget: &Budget{}, topic: &topic{reserved: total}}
}

// Set records how many bytes the account holds now. It reports whether the account is full: from when it reaches its
// limit until it is back at half of it.
func (a *Account) Set(used int64) (full bool) {
	a.budget.mu.Lock()
	defer a.budget.mu.Unlock()
	if a.closed {
		return a.full
	}
	a.become(used, a.full)
	limit := a.limit()
	switch {
	case used >= limit:
		a.become(used, true)
	case used <= limit/2:
		a.become(used, false)
	}
	return a.full
}

// Room returns how many more bytes the account may hold. next is the size of the next piece; the result is 0 or at
// least next.
//
// A piece may exceed the account's limit. An empty account gets it if that much memory is free, or else if no other
// account of the topic holds such a piece. So all accounts together hold at most the total plus one piece per topic,
// and each topic makes progress however much others hold.
//
// In the second case Room reserves the topic's slot for such a piece (topic.large) before the piece is taken. The
// account frees the slot with Close, or with a Set after which it is within its reserve or all accounts are within
// the total. Once the piece is taken and others have released as much, another account may get the slot.
func (a *Account) Room(next int64) int64 {
	b := a.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	if room := a.limit() - a.used; room >= next {
		return room
	}
	if a.used > 0 { // it waits for its own memory to be released
		a.become(a.used, true)
		return 0
	}
	if b.extra+next-a.topic.reserved > b.common {
		if large := a.topic.large; large != nil && large != a && (large.used == 0 || b.extra > b.common) {
			return 0
		}
		a.topic.large = a
	}
	return next
}

// Limit returns how many bytes the account may hold, as of now.
func (a *Account) Limit() int64 {
	a.budget.mu.Lock()
	defer a.budget.mu.Unlock()
	return a.limit()
}

// Close releases the account's memory. It may be called twice. A later Set has no effect.
func (a *Account) Close() {
	a.budget.mu.Lock()
	defer a.budget.mu.Unlock()
	a.become(0, false)
	a.closed = true
}

// become updates the account and the sums over all accounts. The lock is held, here and below.
func (a *Account) become(used int64, full bool) {
	b := a.budget
	b.extra -= a.extra()
	if !a.full {
		b.idle -= a.extra()
	} else if a.topic.backlogged--; a.topic.backlogged == 0 {
		b.backlogged--
	}
	a.used, a.full = used, full
	b.extra += a.extra()
	if a.topic.large == a && (a.extra() == 0 || b.extra <= b.common) {
		a.topic.large = nil
	}
	if !full {
		b.idle += a.extra()
	} else if a.topic.backlogged++; a.topic.backlogged == 1 {
		b.backlogged++
	}
}

// extra returns the bytes that the account holds beyond its reserve.
func (a *Account) extra() int64 { return max(0, a.used-a.topic.reserved) }

func (a *Account) limit() int64 {
	b := a.budget
	left, topics, parts := b.common-b.idle, b.backlogged, a.topic.backlogged
	if !a.full { // treat it as backlogged: it is about to need more
		left += a.extra()
		if parts++; parts == 1 {
			topics++
		}
	}
	even := max(0, left) / int64(topics) / int64(parts)
	return a.topic.reserved + min(even, a.extra()+max(0, b.common-b.extra))
}
