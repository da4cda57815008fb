package config

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"
	"github.com/spf13/pflag"

	"github.com/waterclock/waterclock/internal/kit/span"
	"github.com/waterclock/waterclock/internal/kit/yamltext"
)

// choice is the pflag.Value of a setting with a fixed list of values.
type choice[T ~string] struct {
	p       *T
	allowed []T
}

func (c choice[T]) String() string {
	if c.p == nil { // pflag calls this on a zero value, to decide whether a default is worth printing
		return ""
	}
	return string(*c.p)
}

func (c choice[T]) Type() string { return list(c.allowed, "|") }

// Choices returns the values that a command line may be completed with.
func (c choice[T]) Choices() []string { return strings.Split(list(c.allowed, ","), ",") }

func (c choice[T]) Set(text string) error {
	if !slices.Contains(c.allowed, T(text)) {
		return fmt.Errorf("needs one of %s", list(c.allowed, ", "))
	}
	*c.p = T(text)
	return nil
}

func list[T ~string](values []T, sep string) string {
	var names []string
	for _, v := range values {
		if v != "" {
			names = append(names, string(v))
		}
	}
	return strings.Join(names, sep)
}

// level is the pflag.Value of a slog.Level.
type level slog.Level

var _ pflag.Value = (*level)(nil)

func (l *level) String() string { return strings.ToLower(slog.Level(*l).String()) }
func (l *level) Type() string   { return "debug|info|warn|error" }

// Choices returns the values that a command line may be completed with.
func (l *level) Choices() []string { return strings.Split(l.Type(), "|") }

func (l *level) Set(text string) error {
	for _, v := range []slog.Level{slog.LevelDebug, slog.LevelInfo, slog.LevelWarn, slog.LevelError} {
		if text == strings.ToLower(v.String()) {
			*l = level(v)
			return nil
		}
	}
	return fmt.Errorf("needs one of debug, info, warn, error")
}

// duration is the pflag.Value of a time.Duration.
type duration time.Duration

var _ pflag.Value = (*duration)(nil)

func (d *duration) String() string { return span.String(time.Duration(*d)) }
func (d *duration) Type() string   { return "duration" }

func (d *duration) Set(text string) error {
	v, err := span.Parse(text)
	if err == nil {
		*d = duration(v)
	}
	return err
}

// Size is a number of bytes, written as in 64MiB.
type Size int64

var _ pflag.Value = (*Size)(nil)

// Units of Size.
const (
	KiB Size = 1 << 10
	MiB Size = 1 << 20
	GiB Size = 1 << 30
)

var errSize = errors.New("needs a number of bytes such as 65536, 512KiB, 64MiB or 2GiB; " +
	"100MB and 1G are understood, too")

// sizeUnits are the units that ParseSize reads, in lower case. KB, MB and GB are powers of 1000; K, M and G are
// powers of 1024, as for dd and the JVM.
var sizeUnits = map[string]Size{
	"": 1, "b": 1,
	"k": KiB, "ki": KiB, "kib": KiB, "m": MiB, "mi": MiB, "mib": MiB, "g": GiB, "gi": GiB, "gib": GiB,
	"kb": 1000, "mb": 1000 * 1000, "gb": 1000 * 1000 * 1000,
}

// maxSizeDecimals is how many digits may follow the point, as in 1.5GiB.
const maxSizeDecimals = 3

// ParseSize reads a number of bytes with one of sizeUnits, in capitals or not; a space may stand between them. It
// refuses negative numbers, overflow, and decimals without a unit. Less than a byte is cut off.
func ParseSize(s string) (Size, error) {
	end := strings.LastIndexAny(s, "0123456789") + 1
	unit, ok := sizeUnits[strings.ToLower(strings.TrimPrefix(s[end:], " "))]
	whole, decimals, point := strings.Cut(s[:end], ".")
	n, err := strconv.ParseUint(whole, 10, 63)
	if !ok || err != nil || n > uint64(math.MaxInt64/unit) {
		return 0, errSize
	}
	size := Size(n) * unit
	if !point {
		return size, nil
	}
	part, err := strconv.ParseUint(decimals, 10, 32)
	if err != nil || len(decimals) > maxSizeDecimals || unit == 1 {
		return 0, errSize
	}
	more := Size(part) * unit / Size(math.Pow10(len(decimals)))
	if more > math.MaxInt64-size {
		return 0, errSize
	}
	return size + more, nil
}

// String writes s in a unit that divides it, as ParseSize reads it.
func (s Size) String() string {
	for _, u := range []struct {
		name string
		size Size
	}{{"GiB", GiB}, {"MiB", MiB}, {"GB", 1000 * 1000 * 1000}, {"MB", 1000 * 1000}, {"KiB", KiB}} {
		if s != 0 && s%u.size == 0 {
			return strconv.FormatInt(int64(s/u.size), 10) + u.name
		}
	}
	return strconv.FormatInt(int64(s), 10)
}

// Set implements pflag.Value.
func (s *Size) Set(text string) error {
	v, err := ParseSize(text)
	if err == nil {
		*s = v
	}
	return err
}

// Type implements pflag.Value. It returns the word that stands for the value in a help text.
func (s *Size) Type() string { return "size" }

// DelayTopic is a fixed-delay topic: its records are passed on that delay after their timestamps.
type DelayTopic struct {
	Topic  string
	Delay  time.Duration // whole milliseconds, MinDelay to MaxDelay
	Target string        // of records that name none; if it is empty, they must
}

// String writes an entry of --delay: TOPIC:DURATION, or TOPIC:DURATION:TARGET.
func (d DelayTopic) String() string {
	text := d.Topic + ":" + span.String(d.Delay)
	if d.Target != "" {
		text += ":" + d.Target
	}
	return text
}

func parseDelayTopic(text string) (d DelayTopic, err error) {
	parts := strings.SplitN(text, ":", 3)
	if len(parts) < 2 {
		return d, fmt.Errorf("needs TOPIC:DURATION or TOPIC:DURATION:TARGET for each topic, and not %q", text)
	}
	if d.Delay, err = span.Parse(parts[1]); err != nil {
		return d, fmt.Errorf("%w in %q", err, text)
	}
	if d.Topic = parts[0]; len(parts) == 3 {
		d.Target = parts[2]
	}
	return d, nil
}

// DelayTopics returns the names of the fixed-delay topics.
func (c *Config) DelayTopics() (names []string) {
	for _, d := range c.Delay {
		names = append(names, d.Topic)
	}
	return names
}

// entries is the pflag.Value, and pflag.SliceValue, of a list whose entries have a form of their own.
type entries[T fmt.Stringer] struct {
	list  *[]T
	kind  string
	parse func(text string) (T, error)
}

var (
	_ pflag.Value      = entries[DelayTopic]{}
	_ pflag.SliceValue = entries[DelayTopic]{}
)

// delayEntries are fixed-delay topics.
func delayEntries(list *[]DelayTopic) entries[DelayTopic] {
	return entries[DelayTopic]{list, "topics", parseDelayTopic}
}

// rateEntries are those of target-rates.
func rateEntries(list *[]TargetRate) entries[TargetRate] {
	return entries[TargetRate]{list, "rates", parseTargetRate}
}

func (e entries[T]) Type() string { return e.kind }

// String is empty without entries: pflag shows no default then.
func (e entries[T]) String() string { return strings.Join(e.GetSlice(), ",") }

// Set adds entries, as repeated flags do for lists of names.
func (e entries[T]) Set(text string) error { return e.add(splitList(text)) }

func (e entries[T]) Append(text string) error {
	one, err := e.parse(text)
	if err == nil {
		*e.list = append(slices.Clone(*e.list), one) // policies may share the list
	}
	return err
}

func (e entries[T]) Replace(items []string) error {
	*e.list = nil
	return e.add(items)
}

func (e entries[T]) add(items []string) error {
	for _, item := range items {
		if err := e.Append(item); err != nil {
			return err
		}
	}
	return nil
}

func (e entries[T]) GetSlice() (items []string) {
	for _, one := range *e.list {
		items = append(items, one.String())
	}
	return items
}

var errDelayMapping = errors.New(
	"entries as in {topic: orders.retry.5m, delay: 5m, target: orders}; target is optional")

// delayText turns an entry of delay in the file, a mapping, into the text of a flag.
func delayText(n *ast.MappingNode) (string, error) {
	fields := map[string]string{}
	for _, v := range n.Values {
		key, err := yamltext.Scalar(v.Key)
		if err != nil {
			return "", errDelayMapping
		}
		value, err := yamltext.Scalar(v.Value)
		if _, twice := fields[key]; err != nil || twice || key != "topic" && key != "delay" && key != "target" ||
			value == "" || strings.Contains(value, ":") {
			return "", errDelayMapping
		}
		fields[key] = value
	}
	if fields["topic"] == "" || fields["delay"] == "" {
		return "", errDelayMapping
	}
	text := fields["topic"] + ":" + fields["delay"]
	if fields["target"] != "" {
		text += ":" + fields["target"]
	}
	return text, nil
}
