package apiserver

import (
	"os"
	"testing"
)

// Instances advertise a reachable address: the host's name if the API listens on all addresses of the machine.
func TestAdvertise(t *testing.T) {
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	for bound, want := range map[string]string{
		"127.0.0.1:8681":  "127.0.0.1:8681",
		"10.1.2.3:8681":   "10.1.2.3:8681",
		"[2001:db8::1]:1": "[2001:db8::1]:1",
		"0.0.0.0:8681":    host + ":8681",
		"[::]:8681":       host + ":8681",
	} {
		if got := advertise(bound); got != want {
			t.Errorf("%s is advertised as %s, want %s", bound, got, want)
		}
	}
}
