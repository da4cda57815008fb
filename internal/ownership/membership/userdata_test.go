package membership

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"
)

func sampleUserData() userData {
	return userData{
		process: "p1", views: []View{{"orders", 0, 1000}, {"t", 3, 0}, {"t", 5, 7}},
		follows: true, copies: []Copy{{View{"t", 1, 9}, true}, {View{"t", 3, 4}, false}}, leaving: true,
		settings: []byte{0xab, 0xcd, 0xef},
	}
}

// FORMAT.md draws these bytes.
func TestUserDataBytes(t *testing.T) {
	want, err := hex.DecodeString("77636c6b" + "01" + // magic, format
		"01" + "02" + "7031" + // process p1
		"02" + "12" + // views, 18 bytes
		"06" + "6f7264657273" + "01" + "00" + "e807" + // orders: one partition, 0 at 1000
		"01" + "74" + "02" + "03" + "00" + "01" + "07" + // t: two partitions, 3 at 0, and 5 at 7
		"04" + "09" + // copies, 9 bytes
		// t: two partitions, 1 at 9, caught up, and 3 at 4
		"01" + "74" + "02" + "01" + "09" + "01" + "01" + "04" + "00" +
		"06" + "00" + // leaving
		"08" + "03" + "abcdef") // settings
	must(t, err)
	d := sampleUserData()
	if got := d.encode(); !bytes.Equal(got, want) {
		t.Errorf("%x, want %x", got, want)
	}
	if got, err := decodeUserData(want); err != nil || fmt.Sprint(got) != fmt.Sprint(d) {
		t.Errorf("%v, %v", got, err)
	}
}

func TestUserDataOfOthers(t *testing.T) {
	d := sampleUserData()
	ours := d.encode()
	sticky := kgo.CooperativeStickyBalancer().JoinGroupMetadata([]string{"t"}, map[string][]int32{"t": {1}}, 3)
	meta := kmsg.NewConsumerMemberMetadata()
	must(t, meta.ReadFrom(sticky))
	newer := bytes.Clone(ours)
	newer[len(userDataMagic)]++
	for _, x := range []struct {
		name string
		b    []byte
		want error
	}{
		{"nothing", nil, errNoUserData},
		{"a version before it", meta.UserData, errNoUserData},
		{"a newer format", newer, errNewerUserData},
		{"a field that must be known", append(bytes.Clone(ours), 3, 1, 0), errNewerUserData},
		{"a field that may be skipped", append(bytes.Clone(ours), 10, 1, 0), nil},
		{"no process", append([]byte(userDataMagic), userDataFormat), errBadUserData},
		{"cut", ours[:len(ours)-1], errBadUserData},
		{"a number that is not the shortest", append([]byte(userDataMagic), userDataFormat, tagProcess, 0x81, 0, 'a'),
			errBadUserData},
	} {
		if _, err := decodeUserData(x.b); !errors.Is(err, x.want) {
			t.Errorf("%s: %v, want %v", x.name, err, x.want)
		}
	}
}

// However many views there are, the user data stay within their limit, and the youngest views are kept.
func TestUserDataIsBounded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.IntRange(1, 225)
		var views []View
		for i := range rapid.IntRange(0, 5000).Draw(t, "views") {
			views = append(views, View{strings.Repeat("x", name.Draw(t, "length")), int32(i), 1<<63 - 1})
			if i > 100 {
				views[i].Topic = views[i-1].Topic
			}
		}
		d := newUserData("p", views, maxRoom)
		b := d.encode()
		if limit := maxViewBytes + maxProcess; len(b) > limit {
			t.Fatalf("%d views are %d bytes, more than %d", len(views), len(b), limit)
		}
		for _, v := range views[:len(d.views)] {
			if !slices.Contains(d.views, v) {
				t.Fatalf("%v is not kept, and later ones are", v)
			}
		}
		if len(d.views) < min(len(views), 60) {
			t.Fatalf("%d of %d are kept", len(d.views), len(views))
		}
		if got, err := decodeUserData(b); err != nil || !slices.Equal(got.views, d.views) {
			t.Fatalf("read again: %v", err)
		}
	})
}

func FuzzUserData(f *testing.F) {
	d := sampleUserData()
	f.Add(d.encode())
	f.Add([]byte(userDataMagic))
	f.Fuzz(func(t *testing.T, b []byte) {
		d, err := decodeUserData(b)
		if err != nil {
			return
		}
		again := d.encode()
		if got, err := decodeUserData(again); err != nil || fmt.Sprint(got) != fmt.Sprint(d) {
			t.Fatalf("%x is read as %v and, written again, as %v, %v", b, d, got, err)
		}
	})
}
