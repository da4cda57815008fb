package config

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"

	"github.com/waterclock/waterclock/internal/kit/yamltext"
)

// ratesSetting is the one setting that may be a mapping in the file.
const ratesSetting = "target-rates"

// MaxTargetRate is the largest number in an entry of target-rates.
const MaxTargetRate = 10_000_000

// rateUnits are the units of a rate, shortest first.
var rateUnits = map[string]time.Duration{"s": time.Second, "m": time.Minute, "h": time.Hour}

// TargetRate is an entry of target-rates: firings to each topic that the glob matches go at most at this rate.
type TargetRate struct {
	Topic string // the request topic whose firings alone count; empty: those of all of them together
	Glob  string
	N     int    // firings, 1 to MaxTargetRate
	Unit  string // in one of these: s, m or h
	Burst int    // 0: one second's worth
}

// PerSecond returns how many firings a second are allowed.
func (t *TargetRate) PerSecond() float64 { return float64(t.N) / rateUnits[t.Unit].Seconds() }

// MaxBurst returns how many firings may go at once after a pause.
func (t *TargetRate) MaxBurst() float64 {
	if t.Burst > 0 {
		return float64(t.Burst)
	}
	return max(1, t.PerSecond())
}

// String writes an entry as parseTargetRate reads it.
func (t TargetRate) String() string {
	text := fmt.Sprintf("%s=%d/%s", t.Glob, t.N, t.Unit)
	if t.Topic != "" {
		text = t.Topic + ":" + text
	}
	if t.Burst > 0 {
		text += ":" + strconv.Itoa(t.Burst)
	}
	return text
}

func parseTargetRate(text string) (r TargetRate, err error) {
	need := func(what string) (TargetRate, error) {
		return TargetRate{}, fmt.Errorf("needs %s, and not %q: write GLOB=N/s, as in mail.*=500/s, or with a burst "+
			"sms=50/s:100", what, text)
	}
	where, rate, ok := strings.Cut(text, "=")
	if !ok {
		return need("a target and a rate for each entry")
	}
	r.Topic, r.Glob = splitTopic(strings.TrimSpace(where))
	rate, burst, bursts := strings.Cut(strings.TrimSpace(rate), ":")
	n, unit, _ := strings.Cut(rate, "/")
	if r.N, err = strconv.Atoi(n); err != nil || r.N < 1 || r.N > MaxTargetRate {
		return need(fmt.Sprintf("a whole number of firings, 1 to %d (to stop a target, pause its timers)",
			MaxTargetRate))
	}
	if r.Unit = unit; rateUnits[unit] == 0 {
		return need("a rate a second, minute or hour: /s, /m or /h")
	}
	if !bursts {
		return r, nil
	}
	if r.Burst, err = strconv.Atoi(burst); err != nil || r.Burst < 1 || r.Burst > MaxTargetRate {
		return need(fmt.Sprintf("a whole number as burst, 1 to %d", MaxTargetRate))
	}
	return r, nil
}

var errRateMapping = errors.New("a mapping of targets to rates, as in {'mail.*': 500/s, sms: 50/s:100}")

// rateTexts turns target-rates in the file, a mapping, into the texts of flags, in its order.
func rateTexts(m ast.MapNode) (texts []string, err error) {
	for each := m.MapRange(); each.Next(); {
		key, err := yamltext.Scalar(each.Key())
		if err != nil {
			return nil, errRateMapping
		}
		value, err := yamltext.Scalar(each.Value())
		if err != nil {
			return nil, errRateMapping
		}
		texts = append(texts, key+"="+value)
	}
	return texts, nil
}

// ownRates makes entries without a request topic those of a tenant.
func (p *Policy) ownRates(topic string) {
	p.TargetRates = slices.Clone(p.TargetRates)
	for i := range p.TargetRates {
		if p.TargetRates[i].Topic == "" {
			p.TargetRates[i].Topic = topic
		}
	}
}

// rates checks entries of target-rates.
func (p *problems) rates(c *Config, setting string, list []TargetRate, serves func(topic string) bool, topics string) {
	for i, r := range list {
		p.want(isGlob(r.Glob), setting, r, "globs of targets as in orders, mail.* or team-?.events before the =")
		p.want(!c.neverTarget(r.Glob), setting, r, neverTargets)
		p.want(serves(r.Topic), setting, r, "a prefix that is "+topics)
		twice := func(o TargetRate) bool { return o.Topic == r.Topic && o.Glob == r.Glob }
		p.want(!slices.ContainsFunc(list[:i], twice), setting, r, "one rate for each glob: remove one of the two")
	}
}
