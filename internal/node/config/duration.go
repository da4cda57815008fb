package config

import (
	"time"

	"github.com/waterclock/waterclock/internal/kit/span"
)

// duration is the pflag.Value of a time.Duration.
type duration time.Duration

func (d *duration) String() string { return span.String(time.Duration(*d)) }
func (d *duration) Type() string   { return "duration" }

func (d *duration) Set(text string) error {
	v, err := span.Parse(text)
	if err == nil {
		*d = duration(v)
	}
	return err
}
