package intake

import "encoding/binary"

// Murmur2Partition returns the partition that a Java producer chooses for key
// among partitions, which must be at least 1: (murmur2(key) & 0x7fffffff) mod
// partitions (org.apache.kafka.clients.producer.internals.BuiltInPartitioner).
func Murmur2Partition(key []byte, partitions int32) int32 {
	return int32(murmur2(key)&0x7fffffff) % partitions
}

// murmur2 is the 32-bit hash of Kafka's org.apache.kafka.common.utils.Utils.
func murmur2(b []byte) uint32 {
	const (
		seed  = 0x9747b28c
		m     = 0x5bd1e995
		shift = 24
	)
	h := seed ^ uint32(len(b))
	for ; len(b) >= 4; b = b[4:] {
		k := binary.LittleEndian.Uint32(b) * m
		k ^= k >> shift
		h = h*m ^ k*m
	}
	switch len(b) {
	case 3:
		h ^= uint32(b[2]) << 16
		fallthrough
	case 2:
		h ^= uint32(b[1]) << 8
		fallthrough
	case 1:
		h = (h ^ uint32(b[0])) * m
	}
	h = (h ^ h>>13) * m
	return h ^ h>>15
}
