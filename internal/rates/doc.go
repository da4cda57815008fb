// Package rates paces firings: the targets that have a rate get no more than that, over all instances of the group.
//
//	limiter := rates.New(rates.Options{Partitions: map[string]int32{"timers": 12}, Rules: rules})
//	go limiter.Run(ctx)
//	h := limiter.Own(at, token, wake) // a partition was acquired
//	a := h.Of("mail.orders")          // nil: this target has no rate
//	if a != nil && !a.Take(now, false) { // when the step is sealed
//		// the firing is rolled back, and its timer deferred
//	}
//
// # The argument
//
// A rate belongs to a target topic: a glob gives each topic that it matches a bucket of its own. No instance may need a
// word from another for each firing, and no moment may come in which two of them count on the same part of the rate.
//
// An instance's share of a rate is the part of the request partitions that it owns. Ownership is the one thing about
// which the group agrees already, exclusively and with fencing, so nothing has to be elected or stored for rates. Its
// bucket fills at share × rate, up to share × burst, less one token that it may owe. All its partitions take from one
// bucket, so an uneven load within an instance costs nothing.
//
// Never more than rate × T + burst in any time T, because:
//
//   - The shares of all instances never add up to more than 1. A partition counts for its former owner until its token
//     dies. The group gives a partition away after its owner has said that it stopped, or when the owner's membership
//     has ended, and then none of its steps is committed any more. It counts for the new owner from settle after its
//     claim on, so that clocks that differ by less do not make two owners of one moment.
//   - When a share falls, so does the level of its bucket, immediately. A share that grows brings an empty bucket.
//   - A token is taken when a step is sealed, which is the timestamp of its emissions. It comes back if the step is
//     certainly aborted: then it is as if the bucket had never given it, except for what overflowed. While the outcome
//     is unknown, or if the partition was lost, it is gone.
//   - An instance begins with empty buckets, so a restart in the middle of a burst does not begin another one.
//   - A firing that a breaker waits for may leave a debt of one token (see Account.Take). A full bucket holds that much
//     less than its part of the burst.
//
// With a backlog no less, because tokens are handed out each roundPause to partitions that wait, and a bucket holds at
// least leastBurst of its own rate. So a step or a round may be late by that much without a token being lost. If the
// burst is smaller than that, it is the burst that is exceeded: by two emissions and a fifth of a second's worth for
// each instance at most.
//
// # What is not used
//
// Instances lend one another nothing. What one leaves unused is lost: with all the backlog on one of two instances
// the target gets half of its rate, and so it does from a kill -9 until the session has ended and the partitions
// count for another (measured: 1,499/s, then 750/s for the ten seconds of the session timeout, then 1,500/s).
//
// A lease on a part of a rate does not mend that. An instance that is silent may be dead or paused. So others would
// wait for its lease to end, and within 10 s no more than 0.2 s of the rate may be lost: leases that are renewed ten
// times a second. And a borrower would have to give back before a new owner counts, which may be of a version that
// lends nothing.
//
// What would do is a pool that is the fold of a log: instances append to a topic which flow they leave to the pool,
// what they want, and how much time has passed since they have read one of their own words. Each computes from the
// same words what each gets. Nothing waits for a lease, because a flow that was lent stays in the pool until the
// group's generation ends, and a step with tokens of the pool commits only in its generation: the offset commit must
// name that one, and not be repeated with the next one, as other steps are. It was tried: a model of it kept the
// bound in the runs that were checked (pauses, kills, moves, late words, older instances), and 97.9 to 98.7 % of the
// rate over 10 s through a kill. It is not here. It took about 1,000 lines. Tokens must be used within half a second
// of being asked for, or the sum of all would exceed the burst; what comes later is lost, and on a machine that was
// busy with other work (load 25 to 45 on two cores) the crash test got far less than the rate, at its worst a tenth
// of it. How much of that is due to the pool was not measured. And a static member can be replaced within a
// generation, so instances with an instance ID could not take part.
//
// # Deferral
//
// What a target's tokens do not suffice for is deferred: its timers are parked in the store, as those of an unhealthy
// target are, under a name of their own (timer.Deferred). So they take no memory, no scan steps over them, and a
// cancel, a pause or an expiry finds them as it finds any parked timer. They come back in due order as tokens come.
// If several partitions of an instance wait, those whose first timers are due at about the same time get even parts,
// and a partition that has only later timers waits.
//
// # Promises
//
// Tokens that are handed to a waiting partition, or to a firing that was planned, are promised: nothing else is planned
// against them. A promise is an economy and not a right. Only Take decides. So a lost promise (its timer was cancelled
// in the meantime) can do no harm, and ends promiseAge after the last sign of life of its account.
//
// # What it costs others
//
// A due timer for a paced target is asked about once under a lock of its own, and a target without a rate is known by
// a look into a map. Nothing waits here. The price of deferral is that of parking: the rows are written to the store.
// While a large checkpoint of the store is written, its partition's deferred timers wait; tokens wait for as long as
// the burst.
package rates
