// Package route finds who answers for a request partition, and asks: this process, or
// another instance of the group, one hop away.
//
// # Who answers
//
// Only the owner of a partition knows what is pending in it, and what became of a
// request. Each owner leaves its name and the address of its API in the metadata of the
// offsets that the group commits, a [Directory] reads that, and the [Router] asks the
// instance that is named there. What is read may be old. It decides where to ask and
// never what is true: whoever is asked answers if it is the process that is meant, for
// partitions that it owns and no others, and says that an instance answers. So a wrong guess,
// also where the address has gone to another service, or to an instance of another cluster,
// costs a hop and a look at the directory, and not a wrong answer. An
// instance that is asked by another one asks nobody else: what is on its way goes one
// hop.
//
// # What is not known is not said
//
// While nobody owns a partition, or its owner cannot be reached, the answer is [ErrMoving]:
// ask again. It is never "there is no such timer". A write has one more: [ErrUnknown], where
// the hop broke when the request was on its way. It may stand in the log or not. Nobody
// repeats it but the caller, who knows whether that does harm.
//
// # Who may ask
//
// Package access signs calls between instances with a key that they share, and knows for
// whom they are. Without a key nothing is forwarded, and the answer to a caller is who owns
// the partition, see [ElsewhereError]. The owner asks for the caller's rights once more.
package route
