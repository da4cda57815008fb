package bench

import (
	"context"

	"github.com/spf13/pflag"
)

// Workload is one of the configurations of this package. [Workloads] has them all.
type Workload interface {
	Shared() *Common         // the settings that all workloads have
	Flags(fs *pflag.FlagSet) // declares its own settings
	check() error            // every problem of the settings
	measure(context.Context, *run) error
}

// Description is a workload, with its usual settings, for the command line.
type Description struct {
	Workload
	Name, Short, Long string
	// Running says that the workload can also measure instances that run already.
	Running bool
}

// Workloads returns all workloads.
func Workloads() []Description {
	life, wait, steady, curve, burst := DefaultLife(), DefaultWait(), DefaultSteady(), DefaultCurve(), DefaultBurst()
	hot, fixed, load, restart, cancel := DefaultHot(), DefaultFixed(), DefaultLoad(), DefaultRestart(), DefaultCancel()
	overload, api, limit, move := DefaultOverload(), DefaultAPI(), DefaultLimit(), DefaultMove()
	return []Description{
		{&life, "life", "timers that live two seconds, as many as go through", "", true},
		{&wait, "wait", "timers that wait 15 to 60 s: taken in as fast as can be, fired as they fall due", "", true},
		{&steady, "steady", "how late emissions are at given rates, next to a bare loop of transactions", "", true},
		{&curve, "curve", "what lateness costs: processor time at given rates and firing intervals",
			`curve starts an instance of its own for each of --intervals, which are its
--firing-interval, and measures it at each rate. The first interval is what the
others are compared with.`, false},
		{&burst, "burst", "timers that are all due at one moment", "", true},
		{&hot, "hot", "one partition that gets everything: requests that wait in its log, then timers that are all due",
			`hot starts instances of its own, one for each of --subs, which are its
--sub-partitions. The first number is what the others are compared with.`, false},
		{&fixed, "fixed", "records of a fixed-delay topic that are all due at one moment",
			"fixed starts an instance of its own, for a fixed-delay topic of the run.", false},
		{&load, "load", "many timers that are not due for a day, and how late others are meanwhile",
			"load starts an instance of its own: nobody's topic should be left with that many timers.", false},
		{&restart, "restart", "time to ready with many pending timers, and what they cost on disk and in memory",
			`restart starts instances of its own, kills one, stops one in order, and takes the
directory of one away. They are static members of a group of the run, so that the time
to ready is theirs and not the group's.`, false},
		{&move, "move", "how long partitions are silent when instances come, go, die or stand still, and what others notice",
			`move starts three instances of its own, with --standbys, and one more that comes and goes,
while timers fire. For each event it says how late timers were, and for how long nothing came,
of the partitions that moved and of the others. The events: nothing, to compare with; another
instance that joins; SIGTERM; drain; kill -9; SIGSTOP until the others have everything (pause);
a rolling restart (roll).`, false},
		{&cancel, "cancel", "timers of which nine in ten are cancelled", "", true},
		{&overload, "overload", "twice as many timers as go through: what they cost, how late what is read in time is, how soon it is over",
			`overload starts an instance of its own for each case. It offers 0.8 of the capacity, twice
the capacity, nothing until all is taken in, and 0.8 again. The cases: timers alone (plain); most of
them cancelled (cancels); all of them on one partition, beside a modest load on the others (hot);
another instance that joins in the middle (rebalance).`, false},
		{&api, "api", "calls of the HTTP API: how fast, how dear, and how late timers are beside them",
			"api starts an instance of its own, whose API nobody else calls.", false},
		{&limit, "limit", "what the cluster can do without timers: consume, produce, commit", "", false},
	}
}

// SharedFlags declares the settings that all workloads have.
func (c *Common) SharedFlags(fs *pflag.FlagSet) {
	fs.StringVar(&c.Profiles, "profiles", "", "write processor profiles of the instance and of the bare loops to `DIRECTORY`")
	fs.BoolVar(&c.Local, "local", c.Local, "start an instance, and a broker unless --brokers names some")
	fs.IntVar(&c.Brokers, "local-brokers", c.Brokers, "start `N` brokers, 1 or 3")
	fs.IntVar(&c.Partitions, "partitions", c.Partitions, "give the topics of the run `N` partitions")
	fs.IntVar(&c.Replication, "replication-factor", c.Replication, "give the topics of the run `N` replicas; -1 for the broker's default")
	fs.IntVar(&c.ValueBytes, "value-bytes", c.ValueBytes, "payload of a timer: `N` bytes that do not compress")
	fs.IntSliceVar(&c.Steps, "transaction-sizes", c.Steps, "pass-throughs take `N,...` records in a transaction, one after the other; the best counts")
	fs.IntVar(&c.PassRecords, "records", c.PassRecords, "each pass-through passes `N` records")
	fs.IntSliceVar(&c.IDs, "ids", c.IDs, "pass-throughs use `N,...` transactional IDs in turn, with the best size of a transaction; the best counts")
	fs.IntSliceVar(&c.Loops, "loops", c.Loops, "pass-throughs run in `N,...` loops side by side, with the best of all that; the best counts")
	fs.IntVar(&c.Rounds, "rounds", c.Rounds, "repeat all of it `N` times; the ratios are medians")
	fs.DurationVar(&c.Timeout, "timeout", c.Timeout, "give up after `DURATION`")
}

func (l *Lives) flags(fs *pflag.FlagSet) {
	fs.DurationVar(&l.Least, "least", l.Least, "each timer is due `DURATION` or more after it is sent")
	fs.DurationVar(&l.Spread, "spread", l.Spread, "and that up to `DURATION` later")
}

func timersFlag(fs *pflag.FlagSet, timers *int) {
	fs.IntVar(timers, "timers", *timers, "schedule `N` timers")
}

func pendingFlag(fs *pflag.FlagSet, pending *int) {
	fs.IntVar(pending, "pending", *pending, "schedule `N` timers that stay pending")
}

// Flags implements Workload.
func (c *LifeConfig) Flags(fs *pflag.FlagSet) {
	fs.BoolVar(&c.Events, "events", false, "have the instance write outcome events; with --local alone")
	timersFlag(fs, &c.Timers)
	c.Lives.flags(fs)
}

// Flags implements Workload.
func (c *SteadyConfig) Flags(fs *pflag.FlagSet) {
	fs.Float64SliceVar(&c.Rates, "rates", c.Rates, "schedule so many timers a second, one after the other: `N,...`")
	fs.DurationVar(&c.Duration, "duration", c.Duration, "each rate is measured for `DURATION`")
	c.Lives.flags(fs)
}

// Flags implements Workload.
func (c *CurveConfig) Flags(fs *pflag.FlagSet) {
	c.SteadyConfig.Flags(fs)
	fs.DurationSliceVar(&c.Intervals, "intervals", c.Intervals, "begin transactions at most so often, one after the other: `DURATION,...`")
	fs.DurationVar(&c.Rest, "rest", c.Rest, "measure an instance with nothing to do for `DURATION`, and then the brokers alone; 0 for neither")
}

// Flags implements Workload.
func (c *BurstConfig) Flags(fs *pflag.FlagSet) { timersFlag(fs, &c.Timers) }

// Flags implements Workload.
func (c *HotConfig) Flags(fs *pflag.FlagSet) {
	timersFlag(fs, &c.Timers)
	fs.DurationVar(&c.Start, "start", c.Start, "an instance may take `DURATION` to start; then timers are taken in, and then they are due")
	fs.IntSliceVar(&c.Subs, "subs", c.Subs, "plan in so many parts, one number after the other: `N,...`")
}

// Flags implements Workload.
func (c *FixedConfig) Flags(fs *pflag.FlagSet) {
	fs.IntVar(&c.Records, "delayed", c.Records, "send `N` records through the fixed-delay topic")
	fs.DurationVar(&c.Delay, "delay", c.Delay, "its delay")
}

// Flags implements Workload.
func (c *LoadConfig) Flags(fs *pflag.FlagSet) {
	c.SteadyConfig.Flags(fs)
	pendingFlag(fs, &c.Pending)
}

// Flags implements Workload.
func (c *MoveConfig) Flags(fs *pflag.FlagSet) {
	fs.StringSliceVar(&c.Cases, "cases", c.Cases, "measure `CASE,...`, one after the other")
	pendingFlag(fs, &c.Pending)
	fs.Float64Var(&c.Rate, "rate", c.Rate, "let `N` timers fire a second meanwhile")
	c.Lives.flags(fs)
}

// Flags implements Workload.
func (c *RestartConfig) Flags(fs *pflag.FlagSet) {
	pendingFlag(fs, &c.Pending)
	fs.IntVar(&c.Overdue, "overdue", c.Overdue, "let `N` timers fall due while the instance is stopped")
}

// Flags implements Workload.
func (c *CancelConfig) Flags(fs *pflag.FlagSet) {
	timersFlag(fs, &c.Timers)
	fs.IntVar(&c.Kept, "kept", c.Kept, "one in `N` is not cancelled")
	fs.DurationVar(&c.Least, "least", c.Least, "each is due `DURATION` after it is sent")
}

// Flags implements Workload.
func (c *OverloadConfig) Flags(fs *pflag.FlagSet) {
	fs.StringSliceVar(&c.Cases, "cases", c.Cases, "measure `CASE,...`, one after the other")
	fs.Float64Var(&c.Capacity, "capacity", c.Capacity, "take `N` timers a second for the capacity; 0: measure it first")
	fs.IntVar(&c.Timers, "timers", c.Timers, "measure it by `N` timers")
	fs.DurationVar(&c.Before, "before", c.Before, "offer 0.8 of it for `DURATION`, before and after")
	fs.DurationVar(&c.Over, "over", c.Over, "offer twice of it for `DURATION`")
	c.Lives.flags(fs)
}

// Flags implements Workload.
func (c *APIConfig) Flags(fs *pflag.FlagSet) {
	c.SteadyConfig.Flags(fs)
	fs.IntVar(&c.Puts, "puts", c.Puts, "all callers make `N` PUTs together")
	fs.IntVar(&c.Gets, "gets", c.Gets, "all callers make `N` GETs together")
	fs.IntVar(&c.Callers, "callers", c.Callers, "`N` callers call at a time")
	pendingFlag(fs, &c.Pending)
}

// Flags implements Workload.
func (c *LimitConfig) Flags(*pflag.FlagSet) {}
