// Package localkafka runs a real Apache Kafka on this machine, without Docker.
//
//	tools, err := localkafka.Find(ctx)
//	cluster, err := localkafka.Start(ctx, tools, dir, 3)
//	defer cluster.Close()
//	client, err := kgo.NewClient(kgo.SeedBrokers(cluster.Seeds()...))
//
// The broker's jars are downloaded from Maven Central once and cached, with an archive of their classes for a quicker
// start. Each cluster has its own directory and free loopback ports. It ends with this process, even if that is
// killed (Linux).
//
// It promises nothing about durability: logs are not synced and the JVM is tuned for a quick start. Set
// WATERCLOCK_KAFKA_LIBS=DIR to use the jars in DIR instead of the cache.
package localkafka
