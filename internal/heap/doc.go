// Package heap decides when garbage is collected.
//
// Go collects when what was allocated since has reached a share of what was in use.
// A service with few timers on their way has some 12 MB in use and makes 35 MB of
// garbage a second at 10,000 timers a second: at a share of a half it collects several
// times a second and spends a good part of its processor time on it. With full queues it has
// 80 to 150 MB in use, and the share decides how much memory its machine must have. So the
// share is larger, up to four times what is in use, while the heap stays below some size,
// two fifths beyond that, and less, down to one fifth, beyond one and a half times that: more
// collections then, for a smaller peak.
//
// Each collection also empties the pools in which kgo keeps what it builds requests in, and
// a buffer that grows to 3 MB again leaves 13 MB of garbage. A lane has its large steps by two
// clients, so what two of them allocate has to fit between two collections. The size was chosen
// for twice that, with 80 to 100 MB in use.
//
// In a cgroup that limits memory, which is how containers do it, the runtime is told
// the limit, as GOMEMLIMIT would, and the heap's free growth is a quarter of it at
// most. Both variables of Go's, GOGC and GOMEMLIMIT, override what is done here.
package heap
