// Package api is the HTTP API of an instance: paths, parameters, JSON, problems (RFC 9457),
// and the OpenAPI 3.1 document, which is made from the Go types here.
//
// It decides nothing about timers. Every change of one is written as a request to the request topic, with the headers
// that the caller gave, and validated like all requests. So a timer is the same whether it was made over HTTP or over
// Kafka, and a rejected request is a dead letter in either case. What the API says about a timer, or about the outcome
// of a request, comes from the owner of its partition, see package route.
//
// # Status codes
//
// If there is a dead letter, its reason is the problem's (statusOf has the table). Otherwise the reason is one of those
// in problem.go. The API claims only what it knows. If a request is in the log and its decision is not known here, the
// status is 202. If it is not known whether the request is in the log, it is 503 with reason unknown-outcome. If a
// partition is on its way to another owner, it is 503 with reason moving, for reads too. Lists and counts then answer
// for the other partitions, and name the missing ones.
//
// # Rights
//
// Authentication, roles and limits are not here: see [Rights].
//
// # Files
//
//   - Pending timers: timers (one), batch (many), list (pages and counts of all), jobs (changes of all).
//   - Dead letters: letters (one, and pages), tally (counts), resends (jobs), reviewed (which are new), which marks
//     stores, as sets of offsets.
//   - Events: events (a stream), activity (pages of all timers), history (pages of one), position (where a stream
//     begins).
//   - Reading logs: logs, browse and backward (the newest first), time_order (all partitions together).
//   - The instance: service, topics, caller.
package api
