// Package service is a whole instance: settings in, Run until the context ends.
// It is the only package that imports all others. serve, dev, benchmarks and
// tests start instances through it, and the commands that talk to a cluster
// without being an instance (schedule, cancel, topics) are here too, because
// they need the same clients.
//
// Order of start: HTTP (so that an instance that cannot reach its brokers says
// so), brokers, topics, store, lanes, membership. Order of stop: membership
// drains and leaves while everything below still runs; then partitions, lanes,
// store.
package service
