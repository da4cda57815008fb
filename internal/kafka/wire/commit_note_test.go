package wire

import (
	"errors"
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestCommitNote(t *testing.T) {
	tests := []struct {
		text string
		want CommitNote
		err  error
	}{
		{text: "wc1 step=p1/0/7 last=p0/1/3", want: CommitNote{Step: "p1/0/7", Last: "p0/1/3"}},
		{text: "wc1 step=p1%2F0%2F7 last=p0%2F1%2F3", want: CommitNote{Step: "p1/0/7", Last: "p0/1/3"}},
		{text: "wc1 step=a", want: CommitNote{Step: "a"}},
		{text: "wc1 step=a later=b", want: CommitNote{Step: "a"}},
		{text: "wc1 step=a partitions=6", want: CommitNote{Step: "a", Partitions: 6}},
		{text: "wc1 step=p1%2F0%2F7 partitions=6 api=http%3A%2F%2Fwc-1%3A8681",
			want: CommitNote{Step: "p1/0/7", Partitions: 6, API: "http://wc-1:8681"}},
		{text: "wc1 step=a partitions=x", err: ErrForeignNote},
		{text: "wc1", want: CommitNote{}},
		{text: "", err: ErrForeignNote},
		{text: "wc", err: ErrForeignNote},
		{text: "wcx step=a", err: ErrForeignNote},
		{text: "AQAAAYy", err: ErrForeignNote}, // Kafka Streams'
		{text: "wc1 step=%zz", err: ErrForeignNote},
		{text: "wc2 step=a", err: ErrNewerFormat},
		{text: "wc12", err: ErrNewerFormat},
	}
	for _, tt := range tests {
		if got, err := ParseCommitNote(tt.text); got != tt.want || !errors.Is(err, tt.err) {
			t.Errorf("%q: got %+v, %v", tt.text, got, err)
		}
	}
	if got := (CommitNote{Step: "p1/7", Last: "ä b", Partitions: 12}).String(); got != "wc1 step=p1%2F7 "+
		"last=%C3%A4+b partitions=12" {
		t.Error(got)
	}
}

func TestCommitNoteFits(t *testing.T) {
	worst := strings.Repeat("\xff", 600)
	if n := len(CommitNote{Step: worst, Last: worst, API: "https://" + strings.Repeat("a", 253) + ":65535",
		Partitions: math.MaxInt32}.String()); n >= 4096 {
		t.Errorf("%d bytes", n)
	}
}

func TestCommitNoteRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := CommitNote{Step: rapid.String().Draw(t, "step"), Last: rapid.String().Draw(t, "last"),
			API: rapid.String().Draw(t, "api")}
		text := want.String()
		if got, err := ParseCommitNote(text); err != nil || got != want {
			t.Fatalf("got %+v, %v", got, err)
		}
		for _, b := range []byte(text) {
			if b < ' ' || b > '~' {
				t.Fatalf("%q is not plain ASCII", text)
			}
		}
	})
}

func FuzzParseCommitNote(f *testing.F) {
	f.Add("wc1 step=p1/0/7 last=p0/1/3")
	f.Add("wc2")
	f.Fuzz(func(t *testing.T, text string) {
		n, err := ParseCommitNote(text)
		if err != nil {
			if errors.Is(err, ErrForeignNote) == errors.Is(err, ErrNewerFormat) {
				t.Fatal(err)
			}
			return
		}
		if again, err := ParseCommitNote(n.String()); err != nil || again != n {
			t.Fatalf("%q: %+v became %+v, %v", text, n, again, err)
		}
	})
}
