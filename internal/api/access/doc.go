// Package access decides who may do what over the HTTP API: it stands between the
// server and the API's handlers.
//
// # What it promises
//
//   - Nobody comes through [Guard.Wrap] without a [Caller], unless the settings say that
//     the API is open. [May] knows no rights where there is no caller: what is mounted
//     beside the guard by accident is closed.
//   - What a call costs before its caller is known is bounded: header bytes, the time to
//     send them, connections, and the processor time of passwords. A body is read after
//     that, up to a limit, and all bodies together take no more than a fixed share of
//     memory.
//   - People are those whom the issuer of tokens, or the proxy, that the file names has named, and
//     are callers of the file. So all rights are in one place.
//   - Secrets are neither kept nor logged. Of passwords there are bcrypt hashes, of tokens
//     SHA-256 hashes.
//   - Each call of a known caller that changes something is one line of the log, also where the
//     caller has no right to it. One that is not let in, for a wrong login or a limit, is counted.
//
// It does not know what a timer is, nor whether a topic exists: rights are asked for
// before anything is looked up, so a refusal does not tell what there is.
//
// # The caller's duties
//
//  1. Make one [Guard] with [New], wrap the root handler once with [Guard.Wrap], serve it
//     with [Guard.Server] and [Guard.Serve].
//  2. Before anything is looked up or written, ask [May] for the role, with the topic and
//     the ID after all decoding; for a filter, with its prefix in place of the ID; for
//     what is about a whole topic, with an empty ID; for what is about the whole service,
//     with an empty topic as well.
//  3. Call [Stream] before the first byte of an answer that has no end, and write it with
//     [StreamWrite]. Others must end within two minutes of the request.
//  4. Ask other instances through [Guard.Peers], with the context of the call, and never
//     hand on the header Authorization. Do not hand on what was handed on: see
//     [Caller.Forwarded].
//
// # Forwarded calls
//
// An instance that owns a partition is asked by another one in the name of a caller. Such
// a call is signed with a key that the instances share (see [sign]), and carries the
// caller's name and not its rights: the instance that is asked looks the name up in its own
// file. The other way, to carry the rights as the first instance has them, was weighed:
//
//   - Files that differ, as they do for a minute while a Kubernetes secret spreads. Here a
//     call needs the right on both instances. A right that was taken away is gone as soon
//     as one of the two knows; a new one may be refused (403, by the name of the instance)
//     until both do. With rights carried along, whoever finds the instance with the oldest
//     file has the old rights everywhere.
//   - An instance that is open, for a test on a laptop, with the right key by accident:
//     carried along, it would lend all rights to everybody. Here its callers are
//     "anonymous", whom no file knows.
//   - A stolen key: the thief may be any caller of the file, and that is bad enough; but
//     not a caller whom nobody has named, nor one with more rights than any.
//   - Size: a name is short, a list of rights need not be.
//
// A call that was recorded can be sent again for 30 s. The address is signed, but whoever
// sends a call chooses what Host it has: so a call names the process that it is for, and no
// other one answers it (route.Call). What changes something is taken once: its nonce is remembered
// for longer than that, and what was signed before the process started is refused, for
// then nothing is remembered yet. A read may be repeated: who could record the call saw
// the answer. TLS (api-tls-cert) is what keeps it from being recorded.
package access
