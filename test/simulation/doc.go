// Package simulation runs a whole cluster within one process: instances of the service with their real clients (kgo)
// and real stores (Pebble on a disk in memory that can crash), and brokers (kfake), in a bubble of testing/synctest, so
// that a minute of the cluster takes a second or two. From a seed it draws a workload and faults, and history judges
// what clients have seen of it. Only tests are here:
//
//	cd test
//	go test ./simulation -run TestSimulation -seeds 100                 fresh seeds, up to the first violation
//	go test ./simulation -run TestSimulation -seeds 100 -totals FILE    each in its own process; failures are counted
//	go test ./simulation -run TestSimulation -seed 17                   one seed, given back
//	go test ./simulation -run TestSimulation -seed 17 -minimise         the faults and requests that it needs
//	go test ./simulation -run TestPlanted -tags planted                 bugs that must be caught
//
// A file for each concern: plan (what is drawn), campaign (many seeds), world (one life of a cluster), host (an
// instance and its disk), brokers, faults, with topicfaults, groupfaults, diskfaults and cut (logs that lose their
// end), network, questions (readers), observe and views (what was seen), totals, coverage; bugs and mends (what is
// planted), change, site and edit (how), plant and planted (the tests); altered (histories with a violation, which the
// judge must find).
//
// A seed gives the settings, the requests, the faults and when each of them comes. It does not give the order in which
// goroutines run, so a violation may need several runs of its seed.
//
// # What it does not show
//
// The brokers are kfake's. Where these are not as real ones are, tests on real brokers have to show what happens:
//
//   - A transaction ends at once, in all partitions: no marker is on its way, lost, or written twice, and nothing
//     answers CONCURRENT_TRANSACTIONS by itself (a fault does).
//   - There are no replicas. A leader moves in an instant and loses nothing. A log loses its end only while all brokers
//     are restarted, and never so that it keeps the records of a transaction and loses its marker: kfake would abort it
//     then, where a real broker leaves it open for ever.
//   - The brokers of a restored copy all have the same age here: one log is cut, and the group's offsets and the
//     coordinators' states are those of the moment.
//   - min.insync.replicas, message.timestamp.type and min.compaction.lag.ms have no effect on kfake. They can be
//     altered, but what brokers do then has to be shown on real ones. Errors that follow from them are faults here.
//   - The cleaner does not look at open transactions, and compacts to the last batch. So it runs only while nothing is
//     open, and no timer ends there between the end of a step and its marker.
//   - A member that dies while it waits for the answer to a join stays a member for ever; here it is taken out when its
//     session is over.
//   - A member that is expired while it waits for its assignment leaves a count that lets no round of the group end;
//     here all members are taken out when a round has lasted longer than any broker lets it.
//   - A coordinator that moves knows at once what the former one knew. None is stale.
//   - Fetch sessions outlive a restart without the IDs of their topics; here none does.
//   - Brokers have one clock, which no fault sets. Instead all instances' clocks are set together.
//
// An instance is within the process, so some deaths are gentler than real ones:
//
//   - One that is killed is cut off and its disk is taken away, as a power cut leaves it. What runs on of it reaches
//     nothing.
//   - One that is frozen has no network and applies nothing. Its timers run on; a stopped process has none.
//   - A clock that is set takes the monotonic one with it.
//   - A disk fails now and then, and in tables only. If it is full, or says EIO, the process ends without closing the
//     store, whose goroutines a bubble would wait for.
//
// And some actors are not here, because what has to follow is done by an operator, with the instances stopped: a
// request topic that is recreated or gets more partitions (topics follow has a test against a model that is ended at
// any moment, and another on real brokers), and a changelog that is lost as a whole.
package simulation
