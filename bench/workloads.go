package bench

import (
	"context"

	"github.com/spf13/pflag"
)

// Workload is one of the configurations of this package. [Workloads] returns them all.
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
	// Running means that the workload can also measure running instances.
	Running bool
}

// Workloads returns all workloads.
func Workloads() []Description {
	life, wait, steady, burst := DefaultLife(), DefaultWait(), DefaultSteady(), DefaultBurst()
	fixed, load, restart := DefaultFixed(), DefaultLoad(), DefaultRestart()
	overload, api, move, plan := DefaultOverload(), DefaultAPI(), DefaultMove(), DefaultPlan()
	calendar, paced, bulk := DefaultCalendar(), DefaultPaced(), DefaultBulk()
	return []Description{
		{&life, "life", "timers that live two seconds, scheduled as fast as they are accepted", "", true},
		{&wait, "wait", "timers that wait 15 to 60 s: accepted as fast as possible, fired when due", "", true},
		{&steady, "steady", "how late emissions are at given rates, compared with a bare loop of transactions", "",
			true},
		{&burst, "burst", "timers that are all due at one moment", "", true},
		{&paced, "paced", "a burst to a target with a rate, and how late other timers are meanwhile",
			`paced starts an instance. It measures how late timers to another target are while the burst fires
at the rate, and while as many timers without a rate fall due one after the other. It prints how
many timers of the burst fired in the best and in the worst ten seconds, compared with the rate.`, false},
		{&fixed, "fixed", "records of a fixed-delay topic that are all due at one moment",
			"fixed starts an instance, which serves a fixed-delay topic of the run.", false},
		{&load, "load", "many timers that are not due for a day, and the lateness of others",
			"load starts an instance with topics of its own, so no topic of yours is left with that many timers.",
			false},
		{&restart, "restart", "time to ready with many pending timers, and their cost on disk and in memory",
			`restart starts instances, kills one, stops one cleanly, and deletes the directory of
one. They are static members of a group of the run, so the time to ready does not
include the group's session timeout.`, false},
		{&move, "move", "how long partitions are silent when instances come, go, die or pause",
			`move starts --instances, with --standbys, and one more that comes and goes, while
timers fire. For each event it says how late timers were and how long partitions emitted
nothing, for the partitions that moved and for the others. The events are: nothing, for
comparison; another instance that joins; sigterm; drain; kill -9; SIGSTOP until the others
own everything (pause); a rolling restart of the others (roll).`, false},
		{&overload, "overload", "twice as many timers as an instance can handle: cost, lateness, how soon it is over",
			`overload starts an instance. It offers 0.8 of the capacity, twice the capacity, nothing until
all requests are accepted, and 0.8 again.`, false},
		{&api, "api", "PUTs over HTTP, of one caller and of many: their speed and cost",
			"api starts an instance, whose API gets no other calls.", false},
		{&calendar, "calendar", "how long recurring timers take to follow a changed calendar, and how late others are",
			`calendar starts an instance that writes events. It schedules --pending recurring timers that name
a calendar, excludes the day on which a tenth of them is due, and waits until the last of these is
rescheduled. Timers that fire at --rate show how late others are, before and meanwhile.`, false},
		{&bulk, "bulk", "a list by a rare label and a job that moves many timers, and how late others are",
			`bulk starts an instance. Among --pending timers it lists those with a label that one in 10,000
has, and then has a job move --moved of them. Timers that fire at --rate show how late others are,
before and during each.`, false},
		{&plan, "plan", "the constants that waterclock plan calculates with, on this machine, in some minutes",
			`plan starts instances. It measures the cost of timers and transactions at several rates and
firing intervals, how many timers a second one partition can handle, the size of pending timers,
and how fast they are replayed. It prints the resulting constants beside the built-in ones, and
writes them to --out, a file for waterclock plan --constants. Do not use the machine meanwhile.`, false},
	}
}

// SharedFlags declares the settings that all workloads have.
func (c *Common) SharedFlags(fs *pflag.FlagSet) {
	fs.StringVar(&c.Profiles, "profiles", "",
		"write processor profiles of the instance and of the bare loops to `DIRECTORY`")
	fs.BoolVar(&c.Local, "local", c.Local, "start an instance, and a broker unless --brokers names some")
	fs.IntVar(&c.Brokers, "local-brokers", c.Brokers, "start `N` brokers, 1 or 3")
	fs.IntVar(&c.Partitions, "partitions", c.Partitions, "give the topics of the run `N` partitions")
	fs.IntVar(&c.Replication, "replication-factor", c.Replication,
		"give the topics of the run `N` replicas; -1 for the broker's default")
	fs.IntVar(&c.ValueBytes, "value-bytes", c.ValueBytes, "payload of a timer: `N` bytes that do not compress")
	fs.IntSliceVar(&c.Steps, "transaction-sizes", c.Steps,
		"try pass-throughs with `N,...` records in a transaction; the best counts")
	fs.IntVar(&c.PassRecords, "records", c.PassRecords, "each pass-through passes `N` records")
	fs.IntSliceVar(&c.IDs, "ids", c.IDs, "try pass-throughs with `N,...` transactional IDs in turn; the best counts")
	fs.IntSliceVar(&c.Loops, "loops", c.Loops, "try pass-throughs with `N,...` parallel loops; the best counts")
	fs.IntVar(&c.Rounds, "rounds", c.Rounds, "repeat all of it `N` times; the ratios are medians")
	fs.DurationVar(&c.Timeout, "timeout", c.Timeout, "give up after `DURATION`")
}

func (l *Lives) flags(fs *pflag.FlagSet) {
	fs.DurationVar(&l.Least, "least", l.Least, "each timer is due at least `DURATION` after it is sent")
	fs.DurationVar(&l.Spread, "spread", l.Spread, "each timer is due up to `DURATION` later than that")
}

func timersFlag(fs *pflag.FlagSet, timers *int) {
	fs.IntVar(timers, "timers", *timers, "schedule `N` timers")
}

func pendingFlag(fs *pflag.FlagSet, pending *int) {
	fs.IntVar(pending, "pending", *pending, "schedule `N` timers that stay pending")
}

// Flags implements Workload.
func (lc *LifeConfig) Flags(fs *pflag.FlagSet) {
	fs.BoolVar(&lc.Events, "events", false, "have the instance write outcome events; needs --local")
	timersFlag(fs, &lc.Timers)
	lc.Lives.flags(fs)
}

// Flags implements Workload.
func (s *SteadyConfig) Flags(fs *pflag.FlagSet) {
	fs.Float64SliceVar(&s.Rates, "rates", s.Rates, "schedule `N,...` timers a second, one rate after the other")
	fs.DurationVar(&s.Duration, "duration", s.Duration, "each rate is measured for `DURATION`")
	s.Lives.flags(fs)
}

// Flags implements Workload.
func (b *BurstConfig) Flags(fs *pflag.FlagSet) { timersFlag(fs, &b.Timers) }

// Flags implements Workload.
func (pc *PacedConfig) Flags(fs *pflag.FlagSet) {
	pc.SteadyConfig.Flags(fs)
	timersFlag(fs, &pc.Timers)
	fs.IntVar(&pc.TargetRate, "target-rate", pc.TargetRate, "give the target of the burst a rate of `N` a second")
}

// Flags implements Workload.
func (f *FixedConfig) Flags(fs *pflag.FlagSet) {
	fs.IntVar(&f.Records, "delayed", f.Records, "send `N` records through the fixed-delay topic")
	fs.DurationVar(&f.Delay, "delay", f.Delay, "its delay")
}

// Flags implements Workload.
func (l *LoadConfig) Flags(fs *pflag.FlagSet) {
	l.SteadyConfig.Flags(fs)
	pendingFlag(fs, &l.Pending)
}

// Flags implements Workload.
func (mc *MoveConfig) Flags(fs *pflag.FlagSet) {
	fs.StringSliceVar(&mc.Cases, "cases", mc.Cases, "measure `CASE,...`, one after the other")
	fs.IntVar(&mc.Instances, "instances", mc.Instances,
		"run `N` instances all the time, and one more that comes and goes")
	pendingFlag(fs, &mc.Pending)
	fs.Float64Var(&mc.Rate, "rate", mc.Rate, "let `N` timers a second fire during the moves")
	mc.Lives.flags(fs)
}

// Flags implements Workload.
func (cc *CalendarConfig) Flags(fs *pflag.FlagSet) {
	pendingFlag(fs, &cc.Pending)
	cc.Beside.flags(fs, "before the change")
}

// Flags implements Workload.
func (bc *BulkConfig) Flags(fs *pflag.FlagSet) {
	pendingFlag(fs, &bc.Pending)
	fs.IntVar(&bc.Moved, "moved", bc.Moved, "have the job move `N` of them")
	fs.IntVar(&bc.MoveRate, "move-rate", bc.MoveRate, "have the job write `N` requests a second at most")
	bc.Beside.flags(fs, "before")
}

// Flags implements Workload.
func (rc *RestartConfig) Flags(fs *pflag.FlagSet) {
	pendingFlag(fs, &rc.Pending)
	fs.IntVar(&rc.Overdue, "overdue", rc.Overdue, "let `N` timers fall due while the instance is stopped")
}

// Flags implements Workload.
func (oc *OverloadConfig) Flags(fs *pflag.FlagSet) {
	fs.Float64Var(&oc.Capacity, "capacity", oc.Capacity, "the capacity is `N` timers a second; 0 to measure it first")
	fs.IntVar(&oc.Timers, "timers", oc.Timers, "measure the capacity with `N` timers")
	fs.DurationVar(&oc.Before, "before", oc.Before, "offer 0.8 of the capacity for `DURATION`, before and after")
	fs.DurationVar(&oc.Over, "over", oc.Over, "offer twice the capacity for `DURATION`")
	oc.Lives.flags(fs)
}

// Flags implements Workload.
func (apic *APIConfig) Flags(fs *pflag.FlagSet) {
	fs.IntVar(&apic.Puts, "puts", apic.Puts, "all callers make `N` PUTs together")
	fs.IntVar(&apic.Callers, "callers", apic.Callers, "`N` callers call at the same time")
}

// Flags implements Workload.
func (pc *PlanConfig) Flags(fs *pflag.FlagSet) {
	pc.SteadyConfig.Flags(fs)
	fs.DurationSliceVar(&pc.Intervals, "intervals", pc.Intervals, "measure firing intervals of `DURATION,...`")
	timersFlag(fs, &pc.Timers)
	pendingFlag(fs, &pc.Pending)
	fs.StringVar(&pc.Out, "out", "", "write the measured constants to `FILE`")
}
