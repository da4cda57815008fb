// Package budget shares memory between the partitions of an instance. It is pure
// arithmetic: it holds no memory itself, and makes nobody wait.
//
// # The rule
//
// A request topic is a tenant, and none must keep another one waiting by what it has
// piled up. An eighth of the memory is set aside, in even parts: for each topic as much,
// and within it for each of its partitions. The rest is common, for whoever needs more
// than that. It goes by what everybody did so far, as the room of a step does (package
// transaction): who is content with what it has is let keep it, and what that leaves is
// divided evenly between those who are not, first between topics, then between the
// partitions of one. So
//
//   - what all hold together is bounded by the total, however many partitions there
//     are, but for what is handed over in one piece: nobody may grow but into what is
//     free;
//   - a topic that is alone with a backlog has all but what is set aside for others;
//   - a topic with a backlog, or with many partitions, leaves others as much as it has
//     itself. What it holds beyond that is not taken away: it gets no more until it is
//     below, and what it lets go of is there for those who want it;
//   - nobody depends on anybody else who stands still. A partition that holds nothing
//     may always take something, since its part is set aside for it alone; so it gets
//     on by what it lets go of itself, even where others hold all that is common for
//     ever. So nobody is told when others let go: each looks when it has done so.
package budget

import "sync"

const (
	// apart is the part of the total that is set aside, one in so many.
	apart = 8
	// Least is what is set aside for a partition at least, in bytes: one small entry.
	// It exceeds the total where an eighth of that is less for each partition.
	Least = 1 << 10
)

// Budget is memory that partitions share. It is safe for concurrent use.
type Budget struct {
	common int64 // bytes for those who need more than is set aside for them

	mu     sync.Mutex // guards what follows, in accounts too
	topics map[string]*topic
	extra  int64 // held beyond what is set aside
	modest int64 // the part of that which those hold who are content
	hungry int   // topics that have accounts which are not
}

// topic is what the accounts of one share.
type topic struct {
	apart  int64 // bytes set aside for each partition
	hungry int   // accounts that are not content
}

// Account is what one partition holds.
type Account struct {
	budget *Budget
	topic  *topic
	used   int64
	full   bool // it came to its limit, and is not back at half of it: it is not content
	closed bool
}

// New returns a budget of so many bytes for partitions of topics, by their number.
func New(total int64, partitions map[string]int32) *Budget {
	b := &Budget{common: total - total/apart, topics: make(map[string]*topic)}
	for name, n := range partitions {
		b.topics[name] = &topic{apart: max(Least, total/apart/int64(len(partitions))/int64(max(1, n)))}
	}
	return b
}

// Open returns an account of a partition of one of the topics, which holds nothing.
func (b *Budget) Open(of string) *Account {
	return &Account{budget: b, topic: b.topics[of]}
}

// Alone returns an account that shares with nobody.
func Alone(total int64) *Account {
	return &Account{budget: &Budget{}, topic: &topic{apart: total}}
}

// Set tells how many bytes the account holds now. It reports whether that is enough:
// from its limit on, and until it is back at half of it.
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

// Limit is how many bytes the account may hold, as of now.
func (a *Account) Limit() int64 {
	a.budget.mu.Lock()
	defer a.budget.mu.Unlock()
	return a.limit()
}

// Close gives back what the account holds. It may be closed twice; what is set later has
// no effect.
func (a *Account) Close() {
	a.budget.mu.Lock()
	defer a.budget.mu.Unlock()
	a.become(0, false)
	a.closed = true
}

// become changes what is known of the account. The lock is held, here and below.
func (a *Account) become(used int64, full bool) {
	b := a.budget
	b.extra -= a.extra()
	if !a.full {
		b.modest -= a.extra()
	} else if a.topic.hungry--; a.topic.hungry == 0 {
		b.hungry--
	}
	a.used, a.full = used, full
	b.extra += a.extra()
	if !full {
		b.modest += a.extra()
	} else if a.topic.hungry++; a.topic.hungry == 1 {
		b.hungry++
	}
}

// extra is what the account holds beyond what is set aside for it.
func (a *Account) extra() int64 { return max(0, a.used-a.topic.apart) }

func (a *Account) limit() int64 {
	b := a.budget
	left, topics, parts := b.common-b.modest, b.hungry, a.topic.hungry
	if !a.full { // as if it were not content: it is about to want more
		left += a.extra()
		if parts++; parts == 1 {
			topics++
		}
	}
	even := max(0, left) / int64(topics) / int64(parts)
	return a.topic.apart + min(even, a.extra()+max(0, b.common-b.extra))
}
