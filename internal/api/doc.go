// Package api is the HTTP API of an instance: paths, parameters, JSON, problems (RFC 9457),
// and the OpenAPI 3.1 document, which is made from the Go types here.
//
// It decides nothing about timers. All that changes one is written as a request to the
// request topic, with the headers that the caller gave, and judged where all requests are;
// so the same timer made over HTTP and over Kafka is the same, and what is refused is a dead
// letter in either case. What the API says of a timer, and of what became of a request, the
// owner of its partition has said, see package route.
//
// # Status codes
//
// A problem's reason is that of the dead letter where there is one (statusOf has the table),
// or one of the reasons in problem.go. What is not known is not claimed: a request that is in
// the log and whose decision is not known here is 202, one of which it is not known whether it
// is in the log is 503 with reason unknown-outcome, and a partition that is on its way to
// another owner is 503 with reason moving, for reads too.
//
// # Who may
//
// Authentication, roles and limits are not here: see [Access].
package api
