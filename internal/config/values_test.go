package config

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/waterclock/waterclock/internal/span"
)

func TestParseSize(t *testing.T) {
	for _, c := range []struct {
		in   string
		want Size
		ok   bool
	}{
		{"0", 0, true}, {"17", 17, true}, {"17B", 17, true}, {"64MiB", 64 * MiB, true}, {"2GiB", 2 * GiB, true},
		{"1KiB", 1024, true}, {"9223372036854775807", math.MaxInt64, true},
		{"", 0, false}, {"MiB", 0, false}, {"-1", 0, false}, {"1.5MiB", 0, false}, {"64MB", 0, false},
		{"64M", 0, false}, {"9999999999GiB", 0, false}, {"9223372036854775808", 0, false}, {" 1", 0, false},
	} {
		got, err := ParseSize(c.in)
		if got != c.want || (err == nil) != c.ok {
			t.Errorf("ParseSize(%q) = %d, %v; want %d, %v", c.in, got, err, c.want, c.ok)
		}
	}
}

func FuzzParseSize(f *testing.F) {
	for _, s := range []string{"1", "64MiB", "3B", "8GiB", "99999999999999999GiB"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		v, err := ParseSize(s)
		if err != nil {
			return
		}
		if back, err := ParseSize(v.String()); v < 0 || back != v || err != nil {
			t.Errorf("%q is %d, prints %q, which is %d, %v", s, v, v, back, err)
		}
	})
}

func TestParseDuration(t *testing.T) {
	for _, c := range []struct {
		in   string
		want time.Duration
		out  string // as it prints; empty: refused
	}{
		{"250ms", 250 * time.Millisecond, "250ms"}, {"10s", 10 * time.Second, "10s"},
		{"90s", 90 * time.Second, "1m30s"}, {"1h", time.Hour, "1h"}, {"60m", time.Hour, "1h"},
		{"1h0m5s", time.Hour + 5*time.Second, "1h0m5s"}, {"10m", 10 * time.Minute, "10m"},
		{"7d", 7 * day, "7d"}, {"1d12h", 36 * time.Hour, "1d12h"}, {"36525d", MaxHorizon, "36525d"},
		{"0s", 0, "0s"}, {"20h", 20 * time.Hour, "20h"},
		{"", 0, ""}, {"10", 0, ""}, {"-1s", 0, ""}, {"-1d", 0, ""}, {"1d-1h", 0, ""}, {"1y", 0, ""}, {"1.5d", 0, ""},
		{"106752d", 0, ""}, {"106751d24h", 0, ""}, {"4294967295d", 0, ""}, {"-0s", 0, ""},
	} {
		got, err := ParseDuration(c.in)
		if got != c.want || (err == nil) != (c.out != "") {
			t.Errorf("ParseDuration(%q) = %v, %v; want %v", c.in, got, err, c.want)
		}
		if s := span.String(got); err == nil && s != c.out {
			t.Errorf("%q prints %q, want %q", c.in, s, c.out)
		}
	}
}

func FuzzParseDuration(f *testing.F) {
	for _, s := range []string{"1d", "10s", "1d1h1m1s1ms", "106751d", "1µs"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		v, err := ParseDuration(s)
		if err != nil {
			return
		}
		if back, err := ParseDuration(span.String(v)); v < 0 || back != v || err != nil {
			t.Errorf("%q is %d, prints %q, which is %d, %v", s, v, span.String(v), back, err)
		}
	})
}

func TestSecretNeverShows(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	if err := os.WriteFile(path, []byte("hunter2\r\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := ReadSecret(path)
	if err != nil || s.Reveal() != "hunter2" {
		t.Fatalf("ReadSecret = %q, %v", s.Reveal(), err)
	}
	holder := struct{ S Secret }{s}
	asJSON, err := json.Marshal(holder)
	if err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	slog.New(slog.NewTextHandler(&log, nil)).Info("m", "s", s, "h", holder)
	for _, out := range []string{
		fmt.Sprint(s), fmt.Sprintf("%v %+v %#v %s %q %x %d", s, s, s, s, s, s, s),
		fmt.Sprintf("%v %+v %#v", holder, &holder, holder), string(asJSON), log.String(),
	} {
		if strings.Contains(out, "hunter2") || strings.Contains(out, "68756e74657232") || !strings.Contains(out, redacted) {
			t.Errorf("shown: %s", out)
		}
	}
}

func TestReadSecretErrors(t *testing.T) {
	dir := t.TempDir()
	for name, data := range map[string]string{"empty": "", "newline": "\n", "large": strings.Repeat("x", maxSecretBytes+1)} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadSecret(path); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if _, err := ReadSecret(filepath.Join(dir, "missing")); err == nil {
		t.Error("missing: no error")
	}
}
