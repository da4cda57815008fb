// Package access decides which caller may do what over the HTTP API. It stands between the server and the API's
// handlers.
//
//	guard, err := access.New(options, log)
//	server := guard.Server(guard.Wrap(handler))
//	err = guard.Serve(server, listener)
//	...
//	err = access.May(ctx, access.Write, topic, id) // in each handler
//
// # Guarantees
//
//   - Every call that passes [Guard.Wrap] has a [Caller], unless the settings open the API. Without a caller [May]
//     grants nothing, so a handler that is mounted next to the guard by accident is closed.
//   - The cost of a call before its caller is known is bounded: header bytes, the time to send them, connections, and
//     the processor time of passwords. Only then is the body read, up to a limit, and all bodies together take no
//     more than a fixed part of memory.
//   - A person is named by the issuer of tokens or by the proxy that the file of callers trusts, and the file decides
//     which callers the person is. So all rights are in one place.
//   - Secrets are neither kept nor logged. The file has bcrypt hashes of passwords and SHA-256 hashes of tokens.
//   - Each call of a known caller that changes something is one line of the log, even if the caller has no right to
//     it. A call that is rejected because of a wrong login or a limit is counted.
//
// The package does not know timers, or whether a topic exists. Rights are checked before anything is looked up, so a
// rejection does not reveal whether something exists.
//
// # The caller's duties
//
//  1. Make one [Guard] with [New], wrap the root handler once with [Guard.Wrap], serve it with [Guard.Server] and
//     [Guard.Serve].
//  2. Before anything is looked up or written, ask [May] for the role, with the topic and the decoded ID. For a
//     filter, pass its prefix as the ID. For a whole topic the ID is empty, and for the whole service the topic too.
//  3. Call [Stream] before the first byte of a response that has no end, and write it with [StreamWrite]. All other
//     responses must end within two minutes of the request.
//  4. Call other instances through [Guard.Peers], with the context of the call. Never forward the header
//     Authorization, nor a call that was forwarded: see [Caller.Forwarded].
//
// # Forwarded calls
//
// An instance asks the owner of a partition in the name of a caller. The call is signed with a key that the instances
// share (see [sign]). It carries the caller's name and not its rights: the owner looks the name up in its own file.
// These cases speak against carrying the rights that the first instance knows:
//
//   - The files differ for a minute while a Kubernetes secret spreads. As it is, a call needs the right on both
//     instances. A right that was taken away is gone as soon as one of the two knows. A new right may be rejected
//     (403, naming the instance) until both know. If calls carried rights, a caller that finds the instance with the
//     oldest file would have its old rights everywhere.
//   - An instance that is open, for a test on a laptop, has the right key by accident. If calls carried rights, it
//     would lend all rights to everybody. As it is, its callers are "anonymous", which is in no file.
//   - A key is stolen. The thief can be any caller of the file, which is bad enough, but not a caller that the file
//     does not have, nor one with more rights than any of these.
//   - A name is short. A list of rights may be long.
//
// A recorded call can be replayed for 30 s. The address is signed, but the sender chooses the Host, so a call names
// its destination process, and no other process answers it (route.Call). A call that changes something is accepted
// once: its nonce is remembered for longer than 30 s, and a call that was signed before the process started is
// rejected, because earlier nonces are unknown. A read may be repeated: an attacker who could record the call saw the
// response. TLS (api-tls-cert) keeps calls from being recorded.
package access
