package sizing

import "time"

// RequestsOfTransaction is the least number of requests that an instance sends for a transaction: AddPartitionsToTxn,
// TxnOffsetCommit, EndTxn, and a Produce to each broker that leads one of its partitions, at least one.
const RequestsOfTransaction = 4

// MeasuredInterval is the longest firing interval with figures in docs/BENCHMARKS.md. They follow one law, which is
// assumed to hold beyond it.
const MeasuredInterval = 100 * time.Millisecond

// LongerInterval is the saving by a longer firing interval, of all instances together, each second.
type LongerInterval struct {
	Interval     time.Duration
	Transactions float64
	Requests     float64 // to brokers, at least
	Cores        float64 // of the instances
	BrokerCores  float64
	// Later is how much later timers fire on average, and LaterAtMost at most: half of the increase of the interval,
	// and all of it, because a due timer waits for the end of its lane's interval.
	Later, LaterAtMost time.Duration
}

// longerIntervals returns the savings by longer firing intervals, without those that save no more than a shorter one.
func (p *Plan) longerIntervals(l Load, c Constants) (all []LongerInterval) {
	n, most := float64(p.Instances), 0.0
	least := time.Duration(transactionTime(c) * float64(time.Second))
	for _, ms := range []time.Duration{50, 100, 200, 500, 1000} {
		interval := ms * time.Millisecond
		saved := p.Transactions - n*l.transactions(l.Rate/n, interval, c)
		if interval <= l.Interval || saved <= most {
			continue
		}
		most = saved
		later := interval - max(l.Interval, least)
		all = append(all, LongerInterval{
			Interval: interval, Transactions: saved, Requests: saved * RequestsOfTransaction,
			Cores: saved * c.ServiceTransaction / 1e3, BrokerCores: saved * c.BrokerTransaction / 1e3 * copies(l, c),
			Later: later / 2, LaterAtMost: later,
		})
	}
	return all
}
