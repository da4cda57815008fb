// Package service is an instance: settings in, Run until the context ends. With the packages below it,
// it is the only one that imports all others. serve, dev, benchmarks and tests start instances here.
//
// Order of start: HTTP (so that an instance that cannot reach its brokers says so), brokers, topics,
// store, lanes, membership. Order of stop: membership drains and leaves while everything below still
// runs; then partitions, lanes, store.
package service
