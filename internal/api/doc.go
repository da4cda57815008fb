// Package api is the HTTP API of an instance: paths, parameters, JSON, problems (RFC 9457), and the OpenAPI 3.1
// document, which is generated from the Go types here.
//
//	a := api.New(api.Options{Asker: router, Topics: topics, Logs: logs})
//	defer a.Close()
//	handler := guard.Wrap(a)
//
// It decides nothing about timers. Every change of one is written as a request to the request topic, with the headers
// that the caller gave, and validated like all requests. So a timer is the same whether it was made over HTTP or over
// Kafka, and a rejected request is a dead letter in either case. The state of a timer, and the outcome of a request,
// come from the owner of its partition, see package route.
//
// # Status codes
//
// If there is a dead letter, its reason is the problem's (statusOf has the table). Otherwise the reason is one of
// those in problem.go. The API claims only facts that it knows. If a request is in the log and its decision is not
// known here, the status is 202. If it is not known whether the request is in the log, it is 503 with reason
// unknown-outcome. If a partition is moving to another owner, it is 503 with reason moving, for reads too. Lists and
// counts then return the other partitions, and name the missing ones.
//
// # Rights
//
// Authentication, roles and limits are not here: see [Rights].
//
// # Files
//
//   - Pending timers: timers (one), batch (many), list (pages and counts of all), jobs (changes of all).
//   - Dead letters: letters (one, and pages), tally (counts), resends (jobs), reviewed (which are new, as sets of
//     offsets), marks (where these are stored).
//   - Events: events (a stream, and where it begins), activity (pages, of all timers and of one).
//   - Reading logs: logs, browse (the newest first, and all partitions in the order of time).
//   - The instance: service, topics.
package api
