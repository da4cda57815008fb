package intake

import (
	"encoding/binary"
	"maps"
	"math"
	"strings"
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/internal/timer"
)

// internalPrefix begins the names of Kafka's own topics, which are never targets.
const internalPrefix = "__"

// target returns the target of the emission.
func (r *Rules) target(rec *kgo.Record, h *headers) (t timer.Target, refusal *timer.Refusal) {
	if t.Topic, refusal = r.targetTopic(h); refusal != nil {
		return t, refusal
	}
	if t.Key, refusal = h.targetKey(rec.Key); refusal != nil {
		return t, refusal
	}
	t.Partition, refusal = h.targetPartition()
	return t, refusal
}

func (r *Rules) targetTopic(h *headers) (string, *timer.Refusal) {
	if h.has(targetTopicHeader) {
		return allowed(r, h.values[targetTopicHeader])
	}
	if r.DefaultTarget == "" {
		return "", Refuse(waterclock.ReasonNoTarget,
			"there is no timer-target-topic, and the topic %s has no default target: add the header, or configure a "+
				"default.", r.Topic)
	}
	return allowed(r, r.DefaultTarget)
}

// allowed checks the name of a target. It returns a new string, which does not keep the record's memory alive.
func allowed[S string | []byte](r *Rules, topic S) (string, *timer.Refusal) {
	if known := r.targets.known.Load(); known != nil {
		if v, ok := (*known)[string(topic)]; ok {
			return v.topic, v.refusal
		}
	}
	if !timer.ValidTopicName(topic) {
		return "", Refuse(waterclock.ReasonBadTarget,
			"the target topic is %s, which cannot be the name of a topic: give 1 to %d of a-z, A-Z, 0-9, dot, "+
				"underscore and dash.", quote(topic), timer.MaxTopicNameBytes)
	}
	name := string(topic)
	v := verdict{topic: name}
	if why := r.never(name); why != "" {
		v = verdict{refusal: Refuse(waterclock.ReasonTargetNotAllowed,
			"no timer may write to %s: %s; choose another target.", name, why)}
	} else if r.Allow == nil || !r.Allow(name) {
		v = verdict{refusal: Refuse(waterclock.ReasonTargetNotAllowed,
			"requests on %s may not write to %s: add it to the targets of the service, or choose another.",
			r.Topic, name)}
	}
	r.targets.put(name, v)
	return v.topic, v.refusal
}

// never returns the reason why no configuration could allow a target, "" if one could.
func (r *Rules) never(topic string) string {
	switch {
	case strings.HasPrefix(topic, internalPrefix):
		return "topics that begin with " + internalPrefix + " are Kafka's own"
	case r.Never != nil:
		return r.Never(topic)
	}
	return ""
}

// targetKey returns the key of the emission, nil for a null key.
func (h *headers) targetKey(id []byte) ([]byte, *timer.Refusal) {
	key := id
	if h.has(targetKeyHeader) {
		key = h.values[targetKeyHeader]
	}
	if !h.has(targetKeyNullHeader) {
		return key, nil
	}
	if v := h.values[targetKeyNullHeader]; string(v) != waterclock.True {
		return nil, Refuse(waterclock.ReasonBadTargetKeyNull,
			"timer-target-key-null is %s: the only value is true; leave the header out to have a key.", quote(v))
	}
	if h.has(targetKeyHeader) && key != nil {
		return nil, Refuse(waterclock.ReasonConflictingHeaders,
			"timer-target-key comes together with timer-target-key-null: send one of them.")
	}
	return nil, nil
}

func (h *headers) targetPartition() (int32, *timer.Refusal) {
	if !h.has(targetPartitionHeader) {
		return timer.AnyPartition, nil
	}
	text := h.values[targetPartitionHeader]
	if len(text) > 0 && allDigits(text) {
		if n := number(text); n <= math.MaxInt32 {
			return int32(n), nil
		}
	}
	return 0, Refuse(waterclock.ReasonBadPartition,
		"timer-target-partition is %s: send the number of a partition, or leave the header out.", quote(text))
}

// maxTargets is the number of target topics that one Rules caches. Further names are checked each time.
const maxTargets = 1024

// verdict is the result for one target topic: its name, or the reason for rejecting it.
type verdict struct {
	topic   string
	refusal *timer.Refusal
}

// targets caches verdicts, so that a request costs neither a string nor a walk along the list of patterns. Readers
// take no lock: a put replaces the map. If two goroutines put at the same time, one entry may be lost; the next
// request for that topic adds it again.
type targets struct {
	known atomic.Pointer[map[string]verdict]
}

func (t *targets) put(topic string, v verdict) {
	old := t.known.Load()
	grown := map[string]verdict{}
	if old != nil {
		if len(*old) >= maxTargets {
			return
		}
		grown = maps.Clone(*old)
	}
	grown[topic] = v
	t.known.CompareAndSwap(old, &grown)
}

// Murmur2Partition returns the partition that a Java producer chooses for key among partitions, which must be at least
// 1: (murmur2(key) & 0x7fffffff) mod partitions (org.apache.kafka.clients.producer.internals.BuiltInPartitioner).
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
