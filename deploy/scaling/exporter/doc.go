// Package exporter tests that an exporter of lag understands the group: it sends the queries of kafka_exporter to a
// real broker, with the client library that kafka_exporter uses (Sarama).
package exporter
