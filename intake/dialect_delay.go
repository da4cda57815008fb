package intake

import (
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/internal/timer"
)

// The dialects of this file have no target: it is timer-target-topic or the default target of the request
// topic.

// rabbitDelay is the header of RabbitMQ's delayed message exchange, by its readme
// (github.com/rabbitmq/rabbitmq-delayed-message-exchange): the delay of a message in milliseconds, at most
// maxRabbitDelay.
const (
	rabbitDelay    = "x-delay"
	maxRabbitDelay = 1<<32 - 1
)

// fromRabbitMQ makes a message due immediately if its delay is missing, zero or negative, as the exchange does. The
// exchange negates the delay of a message that it delivers, so a message that is sent on with all its headers is not
// delayed again.
func fromRabbitMQ(rec *kgo.Record, limits *Limits) (*kgo.Record, *timer.Refusal) {
	f, refusal := (&vocabulary{known: []string{rabbitDelay}}).parse(rec.Headers, limits)
	if refusal != nil {
		return nil, refusal
	}
	if !f.has(rabbitDelay) {
		return f.atOnce(rec), nil
	}
	text := f.said[rabbitDelay]
	digits, negative := text, len(text) > 0 && text[0] == '-'
	if negative {
		digits = text[1:]
	}
	if len(digits) == 0 || !allDigits(digits) {
		return nil, Refuse(waterclock.ReasonBadDuration,
			"%s is %s: send a whole number of milliseconds, as text.", rabbitDelay, quote(text))
	}
	delay := number(digits)
	if negative {
		delay = 0
	}
	if delay > maxRabbitDelay {
		return nil, Refuse(waterclock.ReasonBadDuration,
			"%s is %s, and RabbitMQ delays by at most %d ms: send timer-after, which takes more.", rabbitDelay,
			quote(text), int64(maxRabbitDelay))
	}
	return f.after(rec, rabbitDelay, delay, "ms")
}

// The headers are named after the fields for delayed delivery in Pulsar's REST and WebSocket APIs and its Java
// client.
const (
	pulsarAt           = "deliverAt"           // Unix milliseconds
	pulsarAfterMillis  = "deliverAfterMs"      // milliseconds
	pulsarAfterSeconds = "deliverAfterSeconds" // seconds
)

// fromPulsar makes a message without these headers due immediately.
func fromPulsar(rec *kgo.Record, limits *Limits) (*kgo.Record, *timer.Refusal) {
	v := vocabulary{known: []string{pulsarAt, pulsarAfterMillis, pulsarAfterSeconds}}
	f, refusal := v.parse(rec.Headers, limits)
	if refusal != nil {
		return nil, refusal
	}
	if len(f.said) == 0 {
		return f.atOnce(rec), nil
	}
	if len(f.said) > 1 {
		return nil, Refuse(waterclock.ReasonConflictingHeaders,
			"more than one of %s, %s and %s is given: send one of them.", pulsarAt, pulsarAfterMillis,
			pulsarAfterSeconds)
	}
	for name, text := range f.said {
		if len(text) == 0 || !allDigits(text) {
			reason := waterclock.ReasonBadDuration
			if name == pulsarAt {
				reason = waterclock.ReasonBadTime
			}
			return nil, Refuse(reason, "%s is %s: send a whole number, digits alone.", name, quote(text))
		}
	}
	switch {
	case f.has(pulsarAfterMillis):
		return f.after(rec, pulsarAfterMillis, number(f.said[pulsarAfterMillis]), "ms")
	case f.has(pulsarAfterSeconds):
		return f.after(rec, pulsarAfterSeconds, number(f.said[pulsarAfterSeconds]), "s")
	}
	at := number(f.said[pulsarAt])
	if at < waterclock.MinUnixMilli {
		return nil, Refuse(waterclock.ReasonSecondsNotMillis,
			"%s is %s: if these are seconds, send milliseconds.", pulsarAt, quote(f.said[pulsarAt]))
	}
	if refusal := f.say(pulsarAt, waterclock.HeaderAt, appendInt(nil, at)); refusal != nil {
		return nil, refusal
	}
	return f.record(rec), nil
}

// after returns the record, due n units after its timestamp.
func (f *foreign) after(rec *kgo.Record, theirs string, n int64, unit string) (*kgo.Record, *timer.Refusal) {
	for _, ours := range []string{waterclock.HeaderAt, waterclock.HeaderCancel, waterclock.HeaderEvery,
		waterclock.HeaderCron} {
		if f.gives(ours) {
			return nil, Refuse(waterclock.ReasonConflictingHeaders, "%s comes together with %s: send one of them.",
				theirs, ours)
		}
	}
	if refusal := f.say(theirs, waterclock.HeaderAfter, append(appendInt(nil, n), unit...)); refusal != nil {
		return nil, refusal
	}
	return f.record(rec), nil
}

// atOnce returns the record, due at its timestamp unless our own headers decide otherwise. A null value without
// such headers cancels.
func (f *foreign) atOnce(rec *kgo.Record) *kgo.Record {
	if rec.Value == nil || decides(f.others) {
		return rec
	}
	f.others = append(f.others, kgo.RecordHeader{Key: waterclock.HeaderAfter, Value: []byte("0s")})
	return f.record(rec)
}
