// Package sizing computes how many instances, cores, bytes of memory and disk a load needs, and its first bottleneck.
//
//	load := sizing.Defaults()
//	load.Rate, load.Pending = 2000, 1e6
//	plan := sizing.Make(load, sizing.Measured())
//
// It is arithmetic on measured constants. `waterclock bench plan` measures most of them.
package sizing

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
)

// Constants are the costs of a timer on a machine. Times are processor time.
type Constants struct {
	ServiceTimer       float64 `json:"service_us_per_timer"`         // scheduled and fired
	BrokerTimer        float64 `json:"broker_us_per_timer"`          // with one replica
	ServiceTransaction float64 `json:"service_ms_per_transaction"`   // of any size
	BrokerTransaction  float64 `json:"broker_ms_per_transaction"`    // with one replica
	ServiceBase        float64 `json:"service_cores_of_an_instance"` // consumers, producers, housekeeping
	BrokerBase         float64 `json:"broker_cores_of_an_instance"`
	DiskPerByte        float64 `json:"disk_bytes_per_byte_of_request"`      // of a pending timer, when merged
	ChangelogPerByte   float64 `json:"changelog_bytes_per_byte_of_request"` // of a pending timer, in each replica
	DiskPeak           float64 `json:"disk_peak_factor"`                    // while tables are merged
	Replay             float64 `json:"replay_records_per_second"`           // without a directory, on an instance
	Partition          float64 `json:"timers_per_second_of_a_partition"`
	SoonOverhead       float64 `json:"memory_bytes_per_timer_due_soon"` // in addition to its own bytes
	FilterBytes        float64 `json:"filter_bytes_per_pending_timer"`
	Replicas           float64 `json:"broker_factor_of_three_replicas"` // of the brokers' time, against one replica
}

// Measured are the constants that are built in, as they were measured in November 2026.
func Measured() Constants {
	return Constants{
		ServiceTimer: 10, BrokerTimer: 7, ServiceTransaction: 1.6, BrokerTransaction: 5.3, ServiceBase: 0.1,
		BrokerBase:  0.1,
		DiskPerByte: 347.0 / 307, ChangelogPerByte: 1, DiskPeak: 2, Replay: 1_000_000, Partition: 24_800,
		SoonOverhead: 130, FilterBytes: 2, Replicas: 3,
	}
}

// ReadConstants reads a file of constants. Missing ones keep their measured values.
func ReadConstants(data []byte) (Constants, error) {
	c := Measured()
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&c); err != nil {
		return c, fmt.Errorf("read constants: %w", err)
	}
	return c, c.validate()
}

func (c *Constants) validate() error {
	var all []error
	for name, v := range c.ByName() {
		if v <= 0 {
			all = append(all, fmt.Errorf("constant %s is %v, and has to be more than 0", name, v))
		}
	}
	return errors.Join(all...)
}

// ByName returns the constants by their names in a file.
func (c *Constants) ByName() map[string]float64 {
	data, _ := json.Marshal(c) // numbers
	all := map[string]float64{}
	_ = json.Unmarshal(data, &all)
	return all
}
