package wire

import (
	"bytes"
	"encoding/hex"
	"errors"
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/waterclock/waterclock/internal/kafka/partlog"
)

// uuid is b, b+1, b+2 and so on.
func uuid(b byte) (id [16]byte) {
	for i := range id {
		id[i] = b + byte(i)
	}
	return id
}

// unhex reads hex digits, ignoring separators.
func unhex(t testing.TB, text string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.Join(strings.Fields(text), ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// The golden bytes: records of older versions must stay readable forever.
const (
	goldenCheckpoint = `
		01
		000102030405060708090a0b0c0d0e0f
		101112131415161718191a1b1c1d1e1f
		ac02
		d00f
		04 70312f37
		01 67
		00`
	goldenEpoch = "05" // format 2: leader epoch 4
	goldenClaim = `
		01
		06
		d00f
		04 70312f38
		01 67
		02 6f31
		02 6d31`
)

var (
	checkpointSample = Checkpoint{Request: uuid(0), Changelog: uuid(16), Position: 300, Step: "p1/7",
		Group: "g", Time: 1000}
	claimSample = Claim{Step: "p1/8", Group: "g", Owner: "o1", Member: "m1", Generation: 3, Time: 1000}
)

func TestGoldenBytes(t *testing.T) {
	if got, want := checkpointSample.AppendTo(nil), unhex(t, goldenCheckpoint); !bytes.Equal(got, want) {
		t.Errorf("checkpoint\n got %x\nwant %x", got, want)
	}
	if got, err := DecodeCheckpoint(unhex(t, goldenCheckpoint)); err != nil || got != checkpointSample {
		t.Errorf("checkpoint: got %+v, %v", got, err)
	}
	second, checkpoint := append(unhex(t, goldenCheckpoint), unhex(t, goldenEpoch)...), checkpointSample
	second[0], checkpoint.Epoch = 2, partlog.EpochOf(4)
	if got := checkpoint.AppendTo(nil); !bytes.Equal(got, second) {
		t.Errorf("checkpoint with an epoch\n got %x\nwant %x", got, second)
	}
	if got, err := DecodeCheckpoint(second); err != nil || got != checkpoint {
		t.Errorf("checkpoint with an epoch: got %+v, %v", got, err)
	}
	if got, want := claimSample.AppendTo(nil), unhex(t, goldenClaim); !bytes.Equal(got, want) {
		t.Errorf("claim\n got %x\nwant %x", got, want)
	}
	if got, err := DecodeClaim(unhex(t, goldenClaim)); err != nil || got != claimSample {
		t.Errorf("claim: got %+v, %v", got, err)
	}
	if got := TimerKey([]byte("x"), []byte("id")); string(got) != "x\x01id" {
		t.Errorf("timer key %q", got)
	}
	if got := string(CheckpointKey()) + string(ClaimKey()); got != "\x02\x03" {
		t.Errorf("reserved keys %q", got)
	}
}

func TestParseKey(t *testing.T) {
	tests := []struct {
		key  string
		kind Kind
		id   string
		err  error
	}{
		{key: "\x01a", kind: KindTimer, id: "a"},
		{key: "\x01\x02", kind: KindTimer, id: "\x02"},
		{key: "\x02", kind: KindCheckpoint},
		{key: "\x03", kind: KindClaim},
		{key: "", err: ErrCorrupt},
		{key: "\x00a", err: ErrCorrupt},
		{key: "\x01", err: ErrCorrupt},
		{key: "\x02a", err: ErrCorrupt},
		{key: "\x03a", err: ErrCorrupt},
		{key: "\x04", err: ErrNewerFormat},
		{key: "\x1f", err: ErrNewerFormat},
		{key: " ", err: ErrCorrupt},
		{key: "a", err: ErrCorrupt},
		{key: "\xff", err: ErrCorrupt},
	}
	for _, tt := range tests {
		kind, id, err := ParseKey([]byte(tt.key))
		if kind != tt.kind || string(id) != tt.id || !errors.Is(err, tt.err) {
			t.Errorf("%q: got %d, %q, %v", tt.key, kind, id, err)
		}
	}
}

func TestDecodeRefuses(t *testing.T) {
	checkpoint, claim := unhex(t, goldenCheckpoint), unhex(t, goldenClaim)
	tests := []struct {
		name  string
		bytes func(b []byte) []byte
		want  error
	}{
		{"nothing", func([]byte) []byte { return nil }, ErrCorrupt},
		{"format 0", func(b []byte) []byte { b[0] = 0; return b }, ErrCorrupt},
		{"format 3", func(b []byte) []byte { b[0] = 3; return b }, ErrNewerFormat},
		{"format 3, short", func([]byte) []byte { return []byte{3} }, ErrNewerFormat},
		{"one byte less", func(b []byte) []byte { return b[:len(b)-1] }, ErrCorrupt},
		{"one byte more", func(b []byte) []byte { return append(b, 0) }, ErrCorrupt},
	}
	for _, tt := range tests {
		if _, err := DecodeCheckpoint(tt.bytes(bytes.Clone(checkpoint))); !errors.Is(err, tt.want) {
			t.Errorf("checkpoint, %s: %v", tt.name, err)
		}
		if _, err := DecodeClaim(tt.bytes(bytes.Clone(claim))); !errors.Is(err, tt.want) {
			t.Errorf("claim, %s: %v", tt.name, err)
		}
	}
	for name, b := range map[string][]byte{
		"format 2 without an epoch": append([]byte{2}, checkpoint[1:]...),
		"epoch 0":                   append(append([]byte{2}, checkpoint[1:]...), 0),
		"an epoch beyond 32 bits":   append(append([]byte{2}, checkpoint[1:]...), 0x80, 0x80, 0x80, 0x80, 8),
	} {
		if _, err := DecodeCheckpoint(b); !errors.Is(err, ErrCorrupt) {
			t.Errorf("checkpoint, %s: %v", name, err)
		}
	}
	for n := range checkpoint {
		if _, err := DecodeCheckpoint(checkpoint[:n]); !errors.Is(err, ErrCorrupt) {
			t.Errorf("checkpoint of %d bytes: %v", n, err)
		}
	}
}

// TestNumbersHaveOneForm rejects bytes that this encoder would not write.
func TestNumbersHaveOneForm(t *testing.T) {
	tests := map[string]string{
		"position longer than needed": "8000",
		"position negative":           "ffffffffffffffffff01",
		"position too long":           "ffffffffffffffffffff01",
	}
	for name, position := range tests {
		b := append([]byte{1}, make([]byte, 32)...)
		b = append(b, unhex(t, position)...)
		b = append(b, 0, 0, 0, 0)
		if _, err := DecodeCheckpoint(b); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
	beyond := unhex(t, "01 8080808010 00 00 00 00 00") // generation 1<<31
	if _, err := DecodeClaim(beyond); !errors.Is(err, ErrCorrupt) {
		t.Errorf("generation beyond 32 bits: %v", err)
	}
}

func drawUUID(t *rapid.T, label string) [16]byte {
	return [16]byte(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, label))
}

func TestCheckpointRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := Checkpoint{
			Request:   drawUUID(t, "request"),
			Changelog: drawUUID(t, "changelog"),
			Position:  rapid.Int64Range(0, math.MaxInt64).Draw(t, "position"),
			Step:      rapid.String().Draw(t, "step"),
			Group:     rapid.String().Draw(t, "group"),
			Owner:     rapid.String().Draw(t, "owner"),
			Time:      rapid.Int64().Draw(t, "time"),
			Epoch:     partlog.Epoch(rapid.Int32Min(0).Draw(t, "epoch")),
		}
		if got, err := DecodeCheckpoint(want.AppendTo(nil)); err != nil || got != want {
			t.Fatalf("got %+v, %v", got, err)
		}
	})
}

func TestClaimRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := Claim{
			Step:       rapid.String().Draw(t, "step"),
			Group:      rapid.String().Draw(t, "group"),
			Owner:      rapid.String().Draw(t, "owner"),
			Member:     rapid.String().Draw(t, "member"),
			Generation: rapid.Int32().Draw(t, "generation"),
			Time:       rapid.Int64().Draw(t, "time"),
		}
		if got, err := DecodeClaim(want.AppendTo(nil)); err != nil || got != want {
			t.Fatalf("got %+v, %v", got, err)
		}
	})
}

func TestTimerKeyRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := rapid.SliceOfN(rapid.Byte(), 1, 600).Draw(t, "id")
		if kind, id, err := ParseKey(TimerKey(nil, want)); err != nil || kind != KindTimer || !bytes.Equal(id, want) {
			t.Fatalf("got %d, %q, %v", kind, id, err)
		}
	})
}

// checkError fails for a decoder's error that callers cannot branch on.
func checkError(t *testing.T, err error) {
	if errors.Is(err, ErrCorrupt) == errors.Is(err, ErrNewerFormat) {
		t.Fatalf("neither corrupt nor newer, or both: %v", err)
	}
}

func FuzzDecodeCheckpoint(f *testing.F) {
	f.Add(unhex(f, goldenCheckpoint))
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := DecodeCheckpoint(b)
		if err != nil {
			checkError(t, err)
		} else if again := c.AppendTo(nil); !bytes.Equal(again, b) {
			t.Fatalf("%x became %x", b, again)
		}
	})
}

func FuzzDecodeClaim(f *testing.F) {
	f.Add(unhex(f, goldenClaim))
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := DecodeClaim(b)
		if err != nil {
			checkError(t, err)
		} else if again := c.AppendTo(nil); !bytes.Equal(again, b) {
			t.Fatalf("%x became %x", b, again)
		}
	})
}

func FuzzParseKey(f *testing.F) {
	f.Add([]byte("\x01id"))
	f.Add(CheckpointKey())
	f.Add(ClaimKey())
	f.Fuzz(func(t *testing.T, b []byte) {
		kind, id, err := ParseKey(b)
		if err != nil {
			checkError(t, err)
		} else if again := append([]byte{byte(kind)}, id...); !bytes.Equal(again, b) {
			t.Fatalf("%x became %x", b, again)
		}
	})
}
