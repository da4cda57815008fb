// Package kafkatest lends tests a real Apache Kafka (see localkafka), which ends
// with its test, also when the test process is killed (Linux). It further injects
// faults between a client and a broker (Wire) and collects what a read_committed
// consumer sees (Collector). Fake brokers, within the process, are for all that
// they can show.
//
// A package that uses Shared or Three must have
//
//	func TestMain(m *testing.M) { kafkatest.Main(m) }
//
// Two test processes of a machine run clusters at a time, or three where there are four cores, or one
// that measures (Alone, MainAlone); others wait, each for those that came before. Where Java 17 or Maven is
// missing, or with -short, tests that ask for a broker skip and say why. The environment
// decides the rest:
//
//	WATERCLOCK_REQUIRE_KAFKA=1   a missing Java or Maven fails instead of skipping
//	WATERCLOCK_KAFKA_LIBS=DIR    use the jars in DIR instead of the cache
//	WATERCLOCK_KAFKA_COUNT=FILE  append one line for each test that got a broker
//	WATERCLOCK_VIOLATIONS=FILE   append one line for each verdict of Inexact
//
// Only tests may import this package.
package kafkatest
