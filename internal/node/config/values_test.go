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
)

func TestParseSize(t *testing.T) {
	for _, c := range []struct {
		in   string
		want Size
		ok   bool
	}{
		{"0", 0, true}, {"17", 17, true}, {"17B", 17, true}, {"64MiB", 64 * MiB, true}, {"2GiB", 2 * GiB, true},
		{"1KiB", 1024, true}, {"9223372036854775807", math.MaxInt64, true},
		{"100MB", 100_000_000, true}, {"64M", 64 * MiB, true}, {"1G", GiB, true}, {"512mb", 512_000_000, true},
		{"1Gi", GiB, true}, {"2 GiB", 2 * GiB, true}, {"1.5GiB", 1536 * MiB, true}, {"0.5k", 512, true},
		{"1.25GB", 1_250_000_000, true},
		{"", 0, false}, {"MiB", 0, false}, {"-1", 0, false}, {"64MBit", 0, false}, {"64X", 0, false}, {"1.5", 0, false},
		{"1.MiB", 0, false}, {".5MiB", 0, false}, {"1.2345GiB", 0, false}, {"1.-5GiB", 0, false}, {"1.+5GiB", 0, false},
		{"9999999999GiB", 0, false}, {"9223372036854775808", 0, false}, {"9223372036854775.999KB", 0, false},
		{" 1", 0, false},
		{"1  GiB", 0, false}, {"1e3", 0, false}, {"0x10", 0, false}, {"1TiB", 0, false},
	} {
		got, err := ParseSize(c.in)
		if got != c.want || (err == nil) != c.ok {
			t.Errorf("ParseSize(%q) = %d, %v; want %d, %v", c.in, got, err, c.want, c.ok)
		}
	}
}

func FuzzParseSize(f *testing.F) {
	for _, s := range []string{"1", "64MiB", "3B", "8GiB", "1.5G", "100 MB", "99999999999999999GiB"} {
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
		if strings.Contains(out, "hunter2") || strings.Contains(out, "68756e74657232") ||
			!strings.Contains(out, redacted) {
			t.Errorf("shown: %s", out)
		}
	}
}

func TestReadSecretErrors(t *testing.T) {
	dir := t.TempDir()
	for name, data := range map[string]string{"empty": "", "newline": "\n",
		"large": strings.Repeat("x", maxSecretBytes+1)} {
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
