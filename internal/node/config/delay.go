package config

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"

	"github.com/waterclock/waterclock/internal/kit/span"
	"github.com/waterclock/waterclock/internal/kit/yamltext"
)

// DelayTopic is a fixed-delay topic: its records are passed on that delay after their
// timestamps.
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

// delayTopics is the pflag.Value, and pflag.SliceValue, of fixed-delay topics.
type delayTopics []DelayTopic

func (d *delayTopics) Type() string { return "topics" }

func (d *delayTopics) String() string {
	if len(*d) == 0 {
		return "" // pflag shows no default
	}
	return strings.Join(d.GetSlice(), ",")
}

// Set adds topics, as repeated flags do for lists of names.
func (d *delayTopics) Set(text string) error { return d.add(splitList(text)) }

func (d *delayTopics) Append(text string) error {
	t, err := parseDelayTopic(text)
	if err == nil {
		*d = append(*d, t)
	}
	return err
}

func (d *delayTopics) Replace(items []string) error {
	*d = nil
	return d.add(items)
}

func (d *delayTopics) add(items []string) error {
	for _, item := range items {
		if err := d.Append(item); err != nil {
			return err
		}
	}
	return nil
}

func (d *delayTopics) GetSlice() (items []string) {
	for _, t := range *d {
		items = append(items, t.String())
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
