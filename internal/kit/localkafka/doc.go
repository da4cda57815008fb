// Package localkafka runs a real Apache Kafka on this machine, without Docker: the broker's jars come from Maven
// Central once and are cached, with an archive of their classes from which brokers start; each cluster lives in a
// directory of its own on free loopback ports and ends with this process, also when that is killed (Linux).
//
// It promises nothing about durability: logs are not synced and the JVM is tuned for a quick start.
// WATERCLOCK_KAFKA_LIBS=DIR has it use the jars in DIR instead of the cache.
package localkafka
