// Package exporter tests that an exporter of lag understands the group: it asks a real broker, with the client library
// that kafka_exporter uses (Sarama), what kafka_exporter asks.
package exporter
