package config

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// Digest identifies the settings by which an instance judges requests and decides about timers: settingDigest bytes for
// each of judgedSettings, in their order. If these settings differ between instances of a group, the outcome of a
// request depends on which of them owns its partition.
//
// Each setting has a hash of its own, so two digests show which settings differ. With one hash of all, an instance
// would have to be asked for its settings, and one without an API cannot be. A hash of 24 bits misses one difference in
// 16 million. Digests are published in the group. None of these settings is a secret.
type Digest []byte

// settingDigest is how many bytes a Digest has for each setting.
const settingDigest = 3

// judgedSettings returns the names of the settings in a digest. Later versions only append names, so that instances of
// two versions compare the settings that both know.
func judgedSettings() []string {
	return []string{
		"requests", "delay", "targets", "default-target", "partitioner-check", "default-max-late", "limit-past",
		"limit-horizon", "limit-headers", "limit-header-bytes", "limit-value-bytes", "limit-interval", "limit-pending",
		"limit-rate", "over-limit", "events", "dead-letters", "dialect", "tracing",
		ratesSetting,
	}
}

// Digest returns the digest of the settings.
func (c *Config) Digest() Digest {
	var d Digest
	judged := c.judged()
	for _, name := range judgedSettings() {
		sum := sha256.Sum256([]byte(name + "\x00" + judged[name]))
		d = append(d, sum[:settingDigest]...)
	}
	return d
}

// judged returns the values of judgedSettings by name. Two configurations have the same text for a setting if and only
// if it has the same effect: the order of lists does not count, nor whether a value is a tenant's or everybody's.
func (c *Config) judged() map[string]string {
	list := func(items []string) string { return strings.Join(slices.Sorted(slices.Values(items)), ",") }
	delay := delayEntries(&c.Delay)
	values := map[string]string{
		"requests": list(c.Requests), delaySetting: list(delay.GetSlice()),
		"partitioner-check": string(c.PartitionerCheck), "tracing": string(c.Tracing),
	}
	policies := func(topic string) map[string]string {
		p := c.PolicyOf(topic)
		texts := make(map[string]string)
		p.flags().VisitAll(func(f *pflag.Flag) {
			texts[f.Name] = flagText(f)
			if f.Name == "targets" {
				texts[f.Name] = list(p.Targets)
			}
		})
		return texts
	}
	common := policies("")
	maps.Copy(values, common)
	for _, topic := range slices.Sorted(slices.Values(slices.Concat(c.Requests, c.DelayTopics()))) {
		for name, text := range policies(topic) {
			if name == "events" && slices.Contains(c.DelayTopics(), topic) {
				continue // a fixed-delay topic has no events, whatever the setting
			}
			if text != common[name] {
				values[name] += fmt.Sprintf("\x00%s=%s", topic, text)
			}
		}
	}
	return values
}

// Differs returns the names of the settings that are not the same in two digests, as far as both have them.
func (d Digest) Differs(other Digest) (names []string) {
	for i, name := range judgedSettings() {
		a, b := d.at(i), other.at(i)
		if a != nil && b != nil && !bytes.Equal(a, b) {
			names = append(names, name)
		}
	}
	return names
}

// at returns the hash of the i-th setting; nil if the digest, of an earlier version, has none.
func (d Digest) at(i int) []byte {
	if len(d) < (i+1)*settingDigest {
		return nil
	}
	return d[i*settingDigest : (i+1)*settingDigest]
}

// Odd returns, for each member of a group, the settings in which it differs from most members; nil if there are none.
// Members without a digest, of earlier versions, are left out. If no value of a setting is more frequent than all
// others, as with two instances, the setting is odd for all members.
func Odd(members map[string]Digest) map[string][]string {
	odd := make(map[string][]string)
	for name, d := range members {
		if len(d) > 0 {
			odd[name] = nil
		}
	}
	for i, setting := range judgedSettings() {
		count := make(map[string]int)
		for _, d := range members {
			if value := d.at(i); value != nil {
				count[string(value)]++
			}
		}
		numbers := slices.Sorted(maps.Values(count))
		for name, d := range members {
			value := d.at(i)
			if value == nil || len(count) < 2 {
				continue
			}
			if most := numbers[len(numbers)-1]; count[string(value)] < most || numbers[len(numbers)-2] == most {
				odd[name] = append(odd[name], setting)
			}
		}
	}
	return odd
}
