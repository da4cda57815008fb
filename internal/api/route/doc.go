// Package route finds the owner of a request partition and asks it: this process, or another instance of the group,
// one hop away.
//
//	answer, err := router.Ask(ctx, &route.Call{Kind: route.Get, Topic: "timers", Partition: 3, ID: id})
//
// # Owners
//
// Only the owner of a partition knows its pending timers, and the outcome of a request. Each owner leaves its name
// and the address of its API in the metadata of the offsets that the group commits. A [Directory] reads these, and
// the [Router] asks the instance that is named there. The directory may be out of date. It decides where to ask, and
// never what is true: an instance answers only if it is the process that the call names, only for partitions that it
// owns, and marks its answers as those of an instance. So a wrong guess costs one hop and one read of the directory,
// and never a wrong answer, even if the address belongs to another service or to an instance of another cluster by
// now. An instance that answers another one forwards nothing: a call goes one hop.
//
// # Unknown is not "no"
//
// While a partition has no owner, or its owner cannot be reached, the answer is [ErrMoving]: retry. It is never
// "there is no such timer". A write has one more: [ErrUnknown], if the hop broke while the request was in flight.
// Then the request may or may not be in the log. Only the caller repeats it, because only the caller knows whether
// that does harm.
//
// # Rights
//
// Package access signs calls between instances with a key that they share, and knows the caller of each. Without a
// key nothing is forwarded, and the answer names the owner of the partition: see [ElsewhereError]. The owner checks
// the caller's rights again.
package route
