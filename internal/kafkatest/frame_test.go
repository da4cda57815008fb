package kafkatest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"testing"

	"pgregory.net/rapid"
)

func TestReadFrame(t *testing.T) {
	for _, tc := range []struct {
		name  string
		in    []byte
		least int
		want  error // nil: the whole input is a frame
	}{
		{"request header only", []byte{0, 0, 0, 8, 0, 26, 0, 5, 0, 0, 0, 7}, minRequest, nil},
		{"response header only", []byte{0, 0, 0, 4, 0, 0, 0, 7}, minResponse, nil},
		{"nothing", nil, minRequest, io.EOF},
		{"half a size", []byte{0, 0}, minRequest, io.ErrUnexpectedEOF},
		{"cut", []byte{0, 0, 0, 8, 0}, minRequest, io.ErrUnexpectedEOF},
		{"too small for a request", []byte{0, 0, 0, 7, 0, 26, 0, 5, 0, 0, 0}, minRequest, errFrameSize},
		{"negative", []byte{0xff, 0xff, 0xff, 0xff}, minResponse, errFrameSize},
		{"too large", []byte{0x7f, 0xff, 0xff, 0xff}, minResponse, errFrameSize},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := readFrame(bytes.NewReader(tc.in), tc.least)
			if !errors.Is(err, tc.want) {
				t.Fatalf("error %v, want %v", err, tc.want)
			}
			if err == nil && !bytes.Equal(got, tc.in) {
				t.Errorf("frame %x, want %x", got, tc.in)
			}
		})
	}
}

func TestHeaders(t *testing.T) {
	key, correlation := requestHeader([]byte{0, 0, 0, 8, 0, 26, 0, 5, 0, 0, 1, 7})
	if key != 26 || correlation != 263 {
		t.Errorf("request header: key %d, correlation ID %d, want 26 and 263", key, correlation)
	}
	if got := responseHeader([]byte{0, 0, 0, 4, 0, 0, 1, 7}); got != 263 {
		t.Errorf("response header: correlation ID %d, want 263", got)
	}
}

// Consecutive frames of any sizes come out as they went in.
func TestFramesRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var stream bytes.Buffer
		sizes := rapid.SliceOfN(rapid.IntRange(minResponse, 3*firstAllocated), 1, 5).Draw(t, "sizes")
		for i, size := range sizes {
			body := bytes.Repeat([]byte{byte(i + 1)}, size)
			stream.Write(binary.BigEndian.AppendUint32(nil, uint32(size)))
			stream.Write(body)
		}
		want := bytes.Clone(stream.Bytes())
		var got []byte
		for range sizes {
			frame, err := readFrame(&stream, minResponse)
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, frame...)
		}
		if !bytes.Equal(got, want) {
			t.Error("the frames differ from what was written")
		}
	})
}

func FuzzReadFrame(f *testing.F) {
	f.Add([]byte{0, 0, 0, 8, 0, 26, 0, 5, 0, 0, 0, 7})
	f.Add([]byte{0x07, 0xff, 0xff, 0xff, 1})
	f.Fuzz(func(t *testing.T, in []byte) {
		frame, err := readFrame(bytes.NewReader(in), minRequest)
		if err != nil {
			return
		}
		if !bytes.Equal(frame, in[:len(frame)]) {
			t.Error("the frame is not a prefix of the input")
		}
		if int(binary.BigEndian.Uint32(frame)) != len(frame)-sizeLen {
			t.Error("the frame's length differs from its size field")
		}
		requestHeader(frame)
	})
}
