// Package kafkatest gives tests a real Apache Kafka (see localkafka), which ends with its test, even if the test
// process is killed (Linux):
//
//	cluster := kafkatest.Shared(t)
//
// It also injects faults between a client and a broker (Wire) and collects records like any read_committed consumer
// (Collector). Tests use fake brokers, within the process, for everything that these can show.
//
// A package that uses Shared or Three must have
//
//	func TestMain(m *testing.M) { kafkatest.Main(m) }
//
// On one machine, two test processes run clusters at a time, or three if there are four cores, or one that
// measures (Alone, MainAlone). Others wait their turn in order. If Java 17 or Maven is missing, or with
// -short, tests that need a broker skip and say why. The environment decides the rest:
//
//	WATERCLOCK_REQUIRE_KAFKA=1   a missing Java or Maven fails instead of skipping
//	WATERCLOCK_KAFKA_LIBS=DIR    use the jars in DIR instead of the cache
//	WATERCLOCK_KAFKA_COUNT=FILE  append one line for each test that got a broker
//	WATERCLOCK_VIOLATIONS=FILE   append one line for each verdict of Inexact
//
// Only tests may import this package.
package kafkatest
