package intake

import (
	"strconv"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/internal/timer"
)

// Headers of kafka-message-scheduler by etf1, by its readme (github.com/etf1/kafka-message-scheduler) and, if that is
// silent, by its program.
const (
	etf1Epoch       = "scheduler-epoch" // Unix seconds
	etf1TargetTopic = "scheduler-target-topic"
	etf1TargetKey   = "scheduler-target-key"

	// Headers that it adds to the message that it triggers.
	etf1Timestamp = "scheduler-timestamp" // of the schedule, Unix seconds
	etf1Key       = "scheduler-key"       // of the schedule: its ID
	etf1Topic     = "scheduler-topic"     // the topic of the schedule
)

// maxUnixSeconds is the first number that certainly means milliseconds: as seconds it would be after the year
// 5138.
const maxUnixSeconds = waterclock.MinUnixMilli

// fromETF1 takes the record's key for the ID, as that scheduler does. A null value deletes, whatever the headers: the
// scheduler copies them all to the tombstones that it writes. Without a target key the key of the emission is null.
func fromETF1(rec *kgo.Record, limits *Limits) (*kgo.Record, *timer.Refusal) {
	if rec.Value == nil && !decides(rec.Headers) {
		return (&foreign{}).record(rec), nil
	}
	v := vocabulary{
		known: []string{etf1Epoch, etf1TargetTopic, etf1TargetKey}, binary: etf1TargetKey,
		drop: []string{etf1Timestamp, etf1Key, etf1Topic}, prefix: "scheduler-",
	}
	f, refusal := v.parse(rec.Headers, limits)
	switch {
	case refusal != nil:
		return nil, refusal
	case len(f.said) == 0 && speaksOurs(f.others):
		return rec, nil
	case !f.has(etf1Epoch) && !decides(f.others):
		return nil, Refuse(waterclock.ReasonNoDueTime,
			"nothing says when the timer is due: add %s in Unix seconds, or cancel with a null value.", etf1Epoch)
	}
	if text, ok := f.said[etf1Epoch]; ok {
		due, refusal := unixSeconds(text)
		if refusal != nil {
			return nil, refusal
		}
		if refusal = f.say(etf1Epoch, waterclock.HeaderAt, instantText(due)); refusal != nil {
			return nil, refusal
		}
	}
	key, given := f.said[etf1TargetKey]
	if given || !f.gives(waterclock.HeaderTargetKey, waterclock.HeaderTargetKeyNull) {
		if refusal = f.say(etf1TargetKey, waterclock.HeaderTargetKey, key); refusal != nil {
			return nil, refusal
		}
	}
	if topic, ok := f.said[etf1TargetTopic]; ok {
		if refusal = f.say(etf1TargetTopic, waterclock.HeaderTargetTopic, topic); refusal != nil {
			return nil, refusal
		}
	}
	f.others = append(f.others,
		kgo.RecordHeader{Key: etf1Timestamp, Value: appendInt(nil, rec.Timestamp.Unix())},
		kgo.RecordHeader{Key: etf1Key, Value: rec.Key},
		kgo.RecordHeader{Key: etf1Topic, Value: []byte(rec.Topic)})
	return f.record(rec), nil
}

// unixSeconds reads scheduler-epoch and returns Unix milliseconds.
func unixSeconds(text []byte) (int64, *timer.Refusal) {
	if len(text) == 0 || !allDigits(text) {
		return 0, Refuse(waterclock.ReasonBadTime, "%s is %s: send Unix seconds, digits alone.", etf1Epoch, quote(text))
	}
	seconds := number(text)
	if seconds >= maxUnixSeconds {
		return 0, Refuse(waterclock.ReasonBeyondHorizon,
			"%s is %s, which as seconds lies behind the year 5138: if these are milliseconds, send seconds.", etf1Epoch,
			quote(text))
	}
	return seconds * 1000, nil
}

func appendInt(b []byte, n int64) []byte { return strconv.AppendInt(b, n, 10) }
