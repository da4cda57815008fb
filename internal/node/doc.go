// Package node runs an instance, from its settings until the context ends:
//
//	err := node.RunWith(ctx, cfg, log, node.Options{})
//
// Only this package and those below it import all others. serve, dev, benchmarks and tests start instances here.
//
// Order of start: HTTP (so that an instance that cannot reach its brokers can say so), brokers, topics, store, lanes,
// membership. Order of stop: membership drains, and leaves unless on-stop says stay, while everything below it still
// runs. Then partitions, lanes and HTTP end at the same time. The store is closed after them, and the clients last.
package node
