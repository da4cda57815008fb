// Package budget shares memory between the partitions of an instance. It only does the arithmetic: it holds no
// memory itself, and never blocks a caller.
//
// # The rule
//
// A request topic is a tenant, and no tenant may hold up another one with its backlog. An eighth of the memory is
// reserved: each topic has the same part of that, and within a topic each partition. The rest is common, for
// partitions that need more than is reserved for them. It is divided by recent use, as the room of a step is
// (package emitter). A partition is backlogged if it has come to its limit and is not back at half of it;
// otherwise it is idle. Idle partitions keep what they hold. The rest is divided evenly between the backlogged ones,
// first between topics, then between the partitions of one topic. So
//
//   - the total bounds what all partitions hold together, however many there are, except for what is handed over in
//     one piece: a partition may grow only into free memory;
//   - a topic that is alone with a backlog has everything but what is reserved for others;
//   - a topic with a backlog, or with many partitions, leaves the others as much as it has itself. What it holds
//     beyond that is not taken away: it gets no more until it is below, and what it releases is free for the others;
//   - no partition depends on another one that stands still. A partition that holds nothing may always take
//     something, because its part is reserved for it alone. So it makes progress with what it releases itself,
//     even if others hold all common memory for ever. That is why nobody is notified when others release memory.
//     A full partition resumes when it has released memory. One that is not full, but has no room for its next record,
//     is tried again soon (partlog.roomPause).
package budget

import "sync"

const (
	// reserved: one in so many bytes of the total is reserved.
	reserved = 8
	// Least is what is reserved for a partition at least, in bytes: one small entry. With very many partitions all
	// of these together may exceed the total.
	Least = 1 << 10
)

// Budget is memory that partitions share. It is safe for concurrent use.
type Budget struct {
	common int64 // bytes for partitions that need more than is reserved for them

	mu         sync.Mutex // guards what follows, in accounts too
	topics     map[string]*topic
	extra      int64 // held beyond what is reserved
	idle       int64 // the part of extra that idle accounts hold
	backlogged int   // topics that have backlogged accounts
}

// topic is what the accounts of one share.
type topic struct {
	reserved   int64 // bytes, for each partition
	backlogged int   // accounts
	// large is the account that Room has let take a piece for which there was no memory; nil: there is none. See Room.
	large *Account
}

// Account is what one partition holds.
type Account struct {
	budget *Budget
	topic  *topic
	used   int64
	full   bool // it is backlogged: it came to its limit, and is not back at half of it
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

// Open returns an account of a partition of one of the topics, which holds nothing.
func (b *Budget) Open(of string) *Account {
	return &Account{budget: b, topic: b.topics[of]}
}

// Alone returns an account that shares with nobody.
func Alone(total int64) *Account {
	return &Account{budget: &Budget{}, topic: &topic{reserved: total}}
}

// Set notes how many bytes the account holds now. It reports whether the account is full: from when it reaches its
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
// and each topic makes progress whatever others hold.
//
// In the second case Room reserves the topic's place for such a piece (topic.large) before the piece is taken. The
// account gives the place back with Close, or with a Set after which it is within its reserved part, or all accounts
// are within the total. Once the piece is taken and others have released as much, another account may have the place.
func (a *Account) Room(next int64) int64 {
	b := a.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	if room := a.limit() - a.used; room >= next {
		return room
	}
	if a.used > 0 { // it waits for what it holds itself
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

// Limit is how many bytes the account may hold, as of now.
func (a *Account) Limit() int64 {
	a.budget.mu.Lock()
	defer a.budget.mu.Unlock()
	return a.limit()
}

// Close gives back what the account holds. It may be called twice. A later Set has no effect.
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

// extra is what the account holds beyond what is reserved for it.
func (a *Account) extra() int64 { return max(0, a.used-a.topic.reserved) }

func (a *Account) limit() int64 {
	b := a.budget
	left, topics, parts := b.common-b.idle, b.backlogged, a.topic.backlogged
	if !a.full { // as if it were backlogged: it is about to need more
		left += a.extra()
		if parts++; parts == 1 {
			topics++
		}
	}
	even := max(0, left) / int64(topics) / int64(parts)
	return a.topic.reserved + min(even, a.extra()+max(0, b.common-b.extra))
}
