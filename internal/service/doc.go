// Package service runs an instance, from its settings until the context ends. Only this package and those below it import
// all others. serve, dev, benchmarks and tests start instances here.
//
// Order of start: HTTP (so that an instance that cannot reach its brokers says so), brokers, topics,
// store, lanes, membership. Order of stop: membership drains and leaves while everything below still
// runs; then partitions, lanes, store.
package service
