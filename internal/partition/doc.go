// Package partition is the life of one owned request partition: taken, live,
// drained, gone. It binds the pieces: requests from intake, the wheels, the
// local store, the lane that commits.
//
// # Who runs what
//
//   - The partition's own goroutine (Run) takes the partition, and from then on
//     folds committed steps, sees to every write to the store and does every scan
//     of it. A checkpoint is written by a goroutine beside it, see delta.
//   - One goroutine per sub-partition (worker) plans: it alone decides about
//     the timer IDs that hash to it, so cancel or fire is never a race.
//   - The lane's goroutine seals, commits, and tells the outcome.
//
// # What a worker knows, and why it is right
//
// A worker plans on the planned state: what the store will hold once everything
// planned is committed and stored. It keeps an item for each ID whose planned
// state may differ from the store (an entry of it is not committed, or not stored
// yet: the overlay), and for each pending timer below its horizon (the wheel). For
// any other ID the store is the truth.
//
// The horizon is a place in the order of firing (due time, offset): every
// pending timer of the worker below it is in its wheel. It moves up by loads:
// the partition's goroutine scans the store from the lowest horizon and posts
// the rows found, with the place the scan reached. The goroutine that scans is
// the one that tells of ended checkpoints, and a worker's inbox is in order. So
// when a worker takes in a load,
//
//   - an entry of which the worker was told before is in what was scanned;
//   - one whose checkpoint ended later has its notice behind the load in the inbox,
//     so its item is still there, and an ID with an item is never taken from a load.
//
// Hence no stale row gets into a wheel, no row is missed, and a firing needs no
// look-up. When wheels hold more than their share of memory, a worker lowers
// its horizon and forgets what lies above; the store has it.
//
// # The gate
//
// Nothing fires until every request that was in the log when the partition was
// taken has been planned: a cancel in the log beats a firing that fell due
// while nobody ran. The word to open comes through the inbox, behind the last
// of those requests.
package partition
