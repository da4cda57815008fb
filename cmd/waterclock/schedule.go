package main

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/internal/kit/span"
	"github.com/waterclock/waterclock/internal/kit/suggest"
	"github.com/waterclock/waterclock/internal/node/commands"
)

const (
	defaultBroker   = "127.0.0.1:9092" // where dev listens
	defaultRequests = "timers"         // what dev serves
)

// scheduleFlags has the flags of schedule that are not settings. They belong to one request, so they are neither in the
// file nor in the environment.
type scheduleFlags struct {
	topic, id, in, at, to string
	value, valueFile, key string
	nullValue, nullKey    bool
	partition             int32
	wait                  waiting
	headers, labels       []string
	labelsHeader          string
	recur                 recurrenceFlags
	maxLate, remember     string
	condition             string
	json                  bool
	given                 func(flag string) bool // whether a flag is on the command line
}

func scheduleCommand(p *process) *cobra.Command {
	var f scheduleFlags
	cmd := &cobra.Command{Use: "schedule"}
	load := clientSettings(p, cmd, &f.topic)
	fs := cmd.Flags()
	fs.StringVar(&f.id, "id", "", "timer `ID`, 1 to 512 bytes (default: a random one)")
	fs.StringVar(&f.in, "in", "", "due after `DURATION`, such as 250ms, 10s, 1h30m or 3d; 0s for immediately")
	fs.StringVar(&f.at, "at", "",
		"due at `TIME`: RFC 3339 with a zone, as in 2030-01-01T09:00:00+01:00, or Unix milliseconds")
	f.recur.bind(fs)
	fs.StringVar(&f.maxLate, "max-late", "", "do not emit later than `DURATION` after it is due")
	fs.StringVar(&f.remember, "remember", "", "keep the ID taken for `DURATION` after the timer has fired, at most "+
		"7d: until then --if absent does not hold")
	fs.StringVar(&f.condition, "if", "", conditionUsage)
	fs.StringVar(&f.to, "to", "", "target `TOPIC` (default: the one the service is configured with; if it has none, "+
		"the request becomes a dead letter)")
	fs.StringVar(&f.value, "value", "", "the payload, as `TEXT` (default: empty)")
	fs.StringVar(&f.valueFile, "value-file", "", "the payload, from `FILE`; - for standard input")
	fs.BoolVar(&f.nullValue, "null-value", false, "no payload: a tombstone appears on the target")
	fs.StringVar(&f.key, "key", "", "`KEY` of the record on the target (default: the timer ID)")
	fs.BoolVar(&f.nullKey, "null-key", false, "the record on the target has no key")
	fs.Int32Var(&f.partition, "partition", -1,
		"`NUMBER` of the target's partition (-1: by the key, as Java clients do)")
	fs.StringArrayVar(
		&f.headers, "header", nil, "pass on a header, as `NAME=VALUE`; may be repeated, the order is kept")
	fs.StringArrayVar(&f.labels, "label", nil, "give the timer a label, `NAME=VALUE`; may be repeated")
	fs.StringVar(&f.labelsHeader, "labels-header", "", "emit the labels in the header `NAME`")
	fs.BoolVar(&f.json, "json", false, "print the request's position, due time and outcome, as JSON")
	f.wait.flag(cmd)
	(&asking{p: p, profile: addProfileFlag(p, fs)}).completePending(cmd, &f.topic)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		f.given = cmd.Flags().Changed
		req, err := f.request(p.stdin)
		if err != nil {
			return err
		}
		cfg, err := load()
		if err != nil {
			return err
		}
		req.Topic = f.topic
		if _, err := req.Record(); err != nil {
			return byFlags(err)
		}
		s, err := p.backend.send(cmd.Context(), cfg, req)
		switch {
		case s.Topic == "":
		case f.json:
			err = errors.Join(err, printWritten(p.stdout, req.ID, "", &s))
		default:
			fmt.Fprintf(p.stdout, "%s written to %s/%d/%d%s\n", req.ID, s.Topic, s.Partition, s.Offset,
				f.saysDue(s.Due))
		}
		switch {
		case s.Note != "":
			fmt.Fprintf(p.stderr, "note: %s\n", s.Note)
		case req.To == "" && req.Wait == 0:
			fmt.Fprintln(p.stderr, "note: without --to the timer goes to the target topic that the service is "+
				"configured with; if it has none, the request becomes a dead letter. --wait tells")
		}
		this := asked{id: req.ID, condition: f.condition, maxLate: f.given("max-late"), json: f.json}
		return this.said(p.stdout, &s, err)
	}
	return cmd
}

// saysDue returns the end of a line, which says when the timer is due, or first due.
func (s *scheduleFlags) saysDue(due time.Time) string {
	switch text := due.UTC().Format(time.RFC3339Nano); {
	case due.IsZero():
		return ""
	case s.given("every") || s.given("cron"):
		return ", first due " + text
	default:
		return ", due " + text
	}
}

// request checks the flags and returns their request.
func (s *scheduleFlags) request(stdin io.Reader) (commands.Request, error) {
	req := commands.Request{ID: s.id, To: s.to}
	switch {
	case !s.given("id"):
		req.ID = rand.Text()
	case req.ID == "" || len(req.ID) > waterclock.MaxIDBytes:
		return req, usagef("--id has %d bytes, needs 1 to %d; without --id the timer gets a random one", len(req.ID),
			waterclock.MaxIDBytes)
	}
	switch {
	case s.given("partition") && s.partition < 0:
		return req, usagef("--partition is %d, needs 0 or more", s.partition)
	case s.given("key") && s.nullKey:
		return req, usagef("--key and --null-key exclude each other")
	}
	var err error
	if req.Options, err = s.due(); err != nil {
		return req, err
	}
	add := func(given bool, o waterclock.Option) {
		if given {
			req.Options = append(req.Options, o)
		}
	}
	for _, d := range []struct {
		flag, text string
		option     func(time.Duration) waterclock.Option
	}{
		{"max-late", s.maxLate, waterclock.MaxLate}, {"jitter", s.recur.jitter, waterclock.Jitter},
		{"remember", s.remember, waterclock.Remember},
	} {
		if s.given(d.flag) {
			long, err := duration(d.flag, d.text)
			if err != nil {
				return req, err
			}
			add(true, d.option(long))
		}
	}
	calendars, err := s.recur.calendars(s.given)
	if err != nil {
		return req, err
	}
	req.Options = append(req.Options, calendars...)
	if req.Wait, err = s.wait.read(s.given("wait")); err != nil {
		return req, err
	}
	add(s.condition != "", waterclock.If(s.condition))
	add(s.to != "", waterclock.To(s.to))
	add(s.nullKey, waterclock.NullKey())
	add(s.given("key"), waterclock.Key([]byte(s.key)))
	add(s.given("partition"), waterclock.Partition(s.partition))
	for _, h := range s.headers {
		name, value, ok := strings.Cut(h, "=")
		if !ok || name == "" {
			return req, usagef("--header is %q, needs NAME=VALUE, as in trace=17", h)
		}
		if err := notOwn(name); err != nil {
			return req, err
		}
		add(true, waterclock.Header(name, []byte(value)))
	}
	if len(s.labels) > 0 {
		labels, err := waterclock.ParseLabels(strings.Join(s.labels, ","))
		if err != nil {
			return req, usagef("--label: %s", strings.TrimPrefix(err.Error(), "parse labels: "))
		}
		add(true, waterclock.Labels(labels))
	}
	add(s.labelsHeader != "", waterclock.LabelsHeader(s.labelsHeader))
	value, err := s.payload(stdin)
	add(true, waterclock.Value(value))
	return req, err
}

// byFlags returns the error of a request that cannot be built as one of usage. The errors of package waterclock name
// its options, as in MaxLate; the command line names flags.
func byFlags(err error) error {
	text := buildOf.ReplaceAllString(err.Error(), "")
	return usagef("%s", optionOf.ReplaceAllStringFunc(text, func(option string) string {
		return "--" + strings.ToLower(wordOf.ReplaceAllString(option, "-$1"))
	}))
}

var (
	buildOf  = regexp.MustCompile(`^build \w+ for timer ("([^"\\]|\\.)*"): `)
	optionOf = regexp.MustCompile(`(?m)^(To|If|MaxLate|Remember|Header|LabelsHeader)\b`) // each fault is a line
	wordOf   = regexp.MustCompile(`\B([A-Z])`)
)

// duration reads a flag that is a duration.
func duration(flag, text string) (time.Duration, error) {
	d, err := span.Parse(text)
	if err != nil {
		return 0, usagef("--%s is %q, %v", flag, text, err)
	}
	return d, nil
}

// setBy maps each header of a request to the flag or command that sets it.
var setBy = map[string]string{
	waterclock.HeaderAt: "--at", waterclock.HeaderAfter: "--in",
	waterclock.HeaderEvery: "--every", waterclock.HeaderCron: "--cron", waterclock.HeaderZone: "--zone",
	waterclock.HeaderUntil: "--until", waterclock.HeaderCount: "--count",
	waterclock.HeaderNotOn: "--not-on", waterclock.HeaderShift: "--shift",
	waterclock.HeaderJitter: "--jitter", waterclock.HeaderCatchUp: "--catch-up", waterclock.HeaderMaxLate: "--max-late",
	waterclock.HeaderRemember: "--remember", waterclock.HeaderIf: "--if",
	waterclock.HeaderTargetTopic: "--to", waterclock.HeaderTargetKey: "--key",
	waterclock.HeaderTargetKeyNull: "--null-key", waterclock.HeaderTargetPartition: "--partition",
	waterclock.HeaderCancel: "waterclock cancel", waterclock.HeaderTrigger: "waterclock trigger",
	waterclock.HeaderPause: "waterclock pause", waterclock.HeaderResume: "waterclock resume",
	waterclock.HeaderMove: "waterclock move", waterclock.HeaderLabels: "--label",
	waterclock.HeaderLabelsHeader: "--labels-header",
}

// notOwn returns an error for a header that is not passed on, and says what sets it.
func notOwn(name string) error {
	lower := strings.ToLower(name)
	by := setBy[lower]
	switch {
	case strings.HasPrefix(name, waterclock.OwnPrefix):
		return usagef("--header names %q: headers that begin with %s are written by the service, and are not passed on",
			name, waterclock.OwnPrefix)
	case !strings.HasPrefix(lower, waterclock.RequestPrefix):
		return nil
	case by == "":
		known := slices.Sorted(maps.Keys(setBy))
		if best := suggest.Header(name, known); best != "" {
			return usagef("--header names %q: there is no such header; did you mean %s, which %s sets?", name, best,
				setBy[best])
		}
		return usagef("--header names %q: headers that begin with %s speak to the service, and there is no such one",
			name, waterclock.RequestPrefix)
	}
	return usagef("--header names %q, which speaks to the service: %s sets it", name, by)
}

// due returns the options that say when the timer is due.
func (s *scheduleFlags) due() ([]waterclock.Option, error) {
	recurs, err := s.recur.options(s.given)
	if err != nil {
		return nil, err
	}
	in, at := s.given("in"), s.given("at")
	switch {
	case recurs != nil && in:
		return nil, usagef("--in and %s exclude each other: --at says when the recurrence begins", s.recur.by())
	case in && at:
		return nil, usagef("--in and --at exclude each other: give one of them, to say when the timer is due")
	case recurs != nil && !at:
		return recurs, nil
	case !in && !at:
		return nil, usagef("needs --in or --at, or --every or --cron, to say when the timer is due")
	case in && strings.HasPrefix(s.in, "-"):
		return nil, usagef("--in is %q, which is in the past: needs a duration from now on; --in 0s fires immediately",
			s.in)
	case in:
		after, err := duration("in", s.in)
		return []waterclock.Option{waterclock.After(after)}, err
	}
	first, err := instant("at", s.at)
	return append([]waterclock.Option{waterclock.At(first)}, recurs...), err
}

// maxPayload bounds how much of a file is read. Topics usually allow far less, and then the broker rejects it.
const maxPayload = math.MaxInt32

// payload returns the payload; nil for none.
func (s *scheduleFlags) payload(stdin io.Reader) ([]byte, error) {
	if one, file := s.given("value"), s.given("value-file"); one && file || s.nullValue && (one || file) {
		return nil, usagef("--value, --value-file and --null-value exclude each other")
	}
	if s.nullValue {
		return nil, nil
	}
	if !s.given("value-file") {
		return []byte(s.value), nil
	}
	in, err := openInput(stdin, s.valueFile)
	if err != nil {
		return nil, usagef("--value-file: %v", err)
	}
	defer in.Close()
	data, err := io.ReadAll(io.LimitReader(in, maxPayload)) // never nil
	if err != nil {
		return nil, usagef("--value-file: %v", err)
	}
	return data, nil
}
