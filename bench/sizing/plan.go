package sizing

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"
)

const (
	// maxInstances limits the instances of a plan.
	maxInstances = 1000
	// perInstance is the number of partitions for each instance that allows an even spread.
	perInstance = 4
	// leastMemory is the memory above which a timer's life gets hardly cheaper.
	leastMemory = 512 << 20
	memoryGrain = 256 << 20
	// soonFor is how far ahead timers are in memory. They have a quarter of memory, the store an eighth.
	soonFor    = 30 * time.Second
	soonPart   = 4
	filterPart = 8
	// keyBytes is the size of a deletion in the changelog: ID and record.
	keyBytes = 60
	// stepEntries and stepBytes are the limits of a transaction: those of package emitter.
	stepEntries = 10_000
	stepBytes   = 16 << 20
)

// Load is the demand on a group of instances.
type Load struct {
	Rate      float64 // timers scheduled, and as many fired, each second at the busiest time
	Pending   float64 // timers at most
	Size      float64 // bytes of a request: ID, payload, headers
	Cores     float64 // of one instance
	Busy      float64 // share of them that may be used, while one instance is down
	Instances int     // 0: as many as needed
	// Partitions of the request topic; 0: as many as needed.
	Partitions int
	Interval   time.Duration // firing-interval
	Replicas   int           // of the topics
	Standbys   int
	Keep       time.Duration // the changelog's delete.retention.ms
	Clean      time.Duration // time that the log cleaner needs for a round: max.compaction.lag.ms at most
}

// Defaults is an empty load, with the service's defaults.
func Defaults() Load {
	return Load{Size: 300, Cores: 2, Busy: 0.7, Interval: 20 * time.Millisecond, Replicas: 3, Keep: 24 * time.Hour,
		Clean: 6 * time.Hour}
}

// Validate returns every problem of a load.
func (l *Load) Validate() error {
	var all []error
	refuse := func(bad bool, format string, args ...any) {
		if bad {
			all = append(all, fmt.Errorf(format, args...))
		}
	}
	finite := func(v, least, most float64) bool { return v >= least && v <= most }
	refuse(!finite(l.Rate, 0.001, 1e9), "rate is %v, needs timers a second, 0.001 to 1G", l.Rate)
	refuse(!finite(l.Pending, 0, 1e12), "pending is %v, needs a number of timers, 0 to 1000G", l.Pending)
	refuse(!finite(l.Size, 1, 100<<20), "size is %v, needs bytes, 1 to 100 MiB", l.Size)
	refuse(!finite(l.Cores, 0.1, 1024), "cores is %v, needs 0.1 to 1024", l.Cores)
	refuse(!finite(l.Busy, 0.05, 1), "busy is %v, needs a share, 0.05 to 1", l.Busy)
	refuse(l.Instances < 0 || l.Instances > maxInstances,
		"instances is %d, needs 1 to %d, or 0 for as many as it takes", l.Instances, maxInstances)
	refuse(l.Partitions < 0 || l.Partitions > 100_000,
		"partitions is %d, needs 1 to 100000, or 0 for as many as it takes", l.Partitions)
	refuse(l.Interval < 0 || l.Interval > time.Second, "firing-interval is %s, needs 0 to 1s", l.Interval)
	refuse(l.Replicas < 1 || l.Replicas > 10, "replicas is %d, needs 1 to 10", l.Replicas)
	refuse(l.Standbys < 0 || l.Standbys > 10, "standbys is %d, needs 0 to 10", l.Standbys)
	refuse(l.Keep <= 0, "keep is %s, needs a time", l.Keep)
	refuse(l.Clean <= 0, "clean is %s, needs a time", l.Clean)
	return errors.Join(all...)
}

// Share is the used part of a resource, at the busiest time while one instance is down.
type Share struct {
	Of   string
	Used float64 // 1 is all of it
}

// Plan is the need of a load.
type Plan struct {
	Instances    int
	Partitions   int
	Cores        float64 // that the instances use together
	BrokerCores  float64 // that the brokers use together for it, clients not included
	Memory       int64   // --memory of each instance
	Disk         float64 // bytes of each instance, while one is down
	Transactions float64 // a second, of all instances
	Changelog    float64 // bytes of each replica
	Records      float64 // in the changelogs
	Replay       time.Duration
	Write, Read  float64  // bytes a second that brokers write, replicas included, and that are read from them
	Shares       []Share  // the greatest first: it is the bottleneck
	Problems     []string // reasons why this is not enough
	Longer       []LongerInterval
}

// Make makes a plan for a valid load.
func Make(l Load, c Constants) Plan {
	var p Plan
	if p.Instances = l.Instances; p.Instances == 0 {
		p.Instances = 2
		for p.Instances < maxInstances && p.perInstance(l, c) > l.Busy*l.Cores {
			p.Instances++
		}
	}
	if p.Partitions = l.Partitions; p.Partitions == 0 {
		p.Partitions = max(perInstance*p.Instances, int(math.Ceil(l.Rate/(c.Partition*l.Busy))))
	}
	n, rest := float64(p.Instances), float64(max(1, p.Instances-1))
	each := l.Rate / n
	p.Transactions = n * l.transactions(each, l.Interval, c)
	p.Cores = n*c.ServiceBase + (l.Rate*c.ServiceTimer+p.Transactions*c.ServiceTransaction*1000)/1e6
	p.BrokerCores = (n*c.BrokerBase + (l.Rate*c.BrokerTimer+p.Transactions*c.BrokerTransaction*1000)/1e6) * copies(l, c)
	p.Longer = p.longerIntervals(l, c)
	p.Disk = l.Pending * l.Size * c.DiskPerByte * c.DiskPeak * float64(1+l.Standbys) / rest
	soon := min(l.Rate/rest*soonFor.Seconds(), l.Pending/rest) * (l.Size + c.SoonOverhead) * soonPart
	filters := l.Pending / rest * float64(1+l.Standbys) * c.FilterBytes * filterPart
	p.Memory = int64(math.Ceil(max(leastMemory, soon, filters)/memoryGrain)) * memoryGrain
	p.Records = l.Pending + l.Rate*(l.Keep+2*l.Clean).Seconds()
	p.Changelog = l.Pending*l.Size*c.ChangelogPerByte + l.Rate*l.Keep.Seconds()*keyBytes +
		l.Rate*l.Clean.Seconds()*(l.Size+keyBytes)
	p.Replay = time.Duration(p.Records / rest / c.Replay * float64(time.Second))
	p.Write = l.Rate * (3*l.Size + keyBytes) * float64(l.Replicas)
	p.Read = l.Rate * ((2+float64(l.Standbys))*l.Size + (3*l.Size+keyBytes)*float64(l.Replicas-1))
	p.Shares = []Share{
		{"processors of an instance", p.perInstance(l, c) / l.Cores},
		{"a partition, which has one transaction at a time", l.Rate / float64(p.Partitions) / c.Partition},
	}
	slices.SortStableFunc(p.Shares, func(a, b Share) int { return cmp.Compare(b.Used, a.Used) })
	p.problems(l)
	if used := p.perInstance(l, c) / l.Cores; l.Instances == 0 && used > l.Busy {
		p.Problems = append(p.Problems, fmt.Sprintf(
			"with %d instances each would use %.2f of its processors, and may use %v", p.Instances, used, l.Busy))
	}
	return p
}

// perInstance returns the cores that an instance uses while one is down.
func (p *Plan) perInstance(l Load, c Constants) float64 {
	each := l.Rate / float64(max(1, p.Instances-1))
	return c.ServiceBase + (each*c.ServiceTimer+l.transactions(each, l.Interval, c)*c.ServiceTransaction*1000)/1e6
}

// transactions is how many transactions an instance makes each second at a rate of timers: one in each firing interval,
// or one after the other if they take longer than that; more if they would be too large; but never more than it has
// timers to schedule and to fire.
func (l *Load) transactions(rate float64, interval time.Duration, c Constants) float64 {
	full := max(2*rate/stepEntries, rate*(2*l.Size+keyBytes)/stepBytes)
	return min(2*rate, max(full, 1/max(interval.Seconds(), transactionTime(c))))
}

// transactionTime returns the duration of a transaction, in seconds.
func transactionTime(c Constants) float64 { return (c.ServiceTransaction + c.BrokerTransaction) / 1000 }

// copies returns the factor of the brokers' processor time compared with one replica.
func copies(l Load, c Constants) float64 { return 1 + (c.Replicas-1)*float64(l.Replicas-1)/2 }

func (p *Plan) problems(l Load) {
	add := func(bad bool, format string, args ...any) {
		if bad {
			p.Problems = append(p.Problems, fmt.Sprintf(format, args...))
		}
	}
	for _, s := range p.Shares {
		add(s.Used > 1, "%.2f of %s would be used", s.Used, s.Of)
	}
	add(p.Partitions < p.Instances, "%d partitions: %d of the %d instances would be spares", p.Partitions,
		p.Instances-p.Partitions, p.Instances)
	add(p.Instances == 1, "one instance: its loss is a silence")
	add(l.Standbys >= p.Instances, "%d standbys need %d instances", l.Standbys, l.Standbys+1)
}
