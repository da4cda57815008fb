package access

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"strconv"
	"time"
)

const (
	// leastBodies is the number of largest bodies that must fit into the memory for calls.
	leastBodies = 4
	// memoryLeast is the part of that memory that each caller may always use, in bytes.
	memoryLeast = 64 << 10
	// bodyFactor is the number of copies of a body in memory: in the buffer that it is read into, in the request that
	// is made from it, and on its way to Kafka.
	bodyFactor = 3
	// bodyStep is the smallest reservation for a part of a body, in bytes.
	bodyStep = 4 << 10
	// bodyWait is how long a call waits for room, and the Retry-After if there is none.
	bodyWait = time.Second
)

// body is the body of a call as handlers read it. Memory for it is reserved as it arrives, so a slow body holds memory
// only for the bytes that have arrived. It is cut if another caller needs the memory. A body that has fully arrived is
// not cut.
type body struct {
	io.ReadCloser // ends at the limit
	ctx           context.Context
	c             *call
	w             http.ResponseWriter
	read, room    int64
}

// errCut ends the reading of a body that was cut, or for which there is no room.
var errCut = errors.New("there is no room for the body")

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	if b.room == 0 {
		b.c.memory.Cuttable(func() { _ = http.NewResponseController(b.w).SetReadDeadline(time.Unix(1, 0)) })
	}
	n, err := b.ReadCloser.Read(p)
	if b.read += int64(n); b.read > b.room {
		more := max(b.read-b.room, bodyStep)
		if b.room += more; !b.c.memory.Grow(b.ctx, more*bodyFactor) {
			err = errCut
		}
	}
	if err != nil {
		b.c.memory.Cuttable(nil)
	}
	if b.c.memory.Cut() {
		err = errCut
	}
	if p := bodyProblem(err); p != nil {
		b.c.broken.Store(p)
	}
	return n, err
}

// BodyProblem returns the reason why the body of ctx's call could not be read; nil if it could.
func BodyProblem(ctx context.Context) *Problem {
	if c := callOf(ctx); c != nil {
		return c.broken.Load()
	}
	return nil
}

// bodyProblem returns the problem for an error of reading a body; nil for the body's end.
func bodyProblem(err error) *Problem {
	large, isLarge := errors.AsType[*http.MaxBytesError](err)
	switch {
	case err == nil, errors.Is(err, io.EOF):
		return nil
	case errors.Is(err, errCut):
		return noRoom()
	case isLarge:
		return tooLarge(large.Limit)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return NewProblem(http.StatusRequestTimeout, ReasonBodyTimeout, "the body did not arrive in time")
	}
	return NewProblem(http.StatusBadRequest, ReasonBadRequest, "the body ends early, or its parts are not well-formed")
}

func tooLarge(limit int64) *Problem {
	return NewProblem(http.StatusRequestEntityTooLarge, ReasonTooLarge,
		"the body has more than "+strconv.FormatInt(limit, 10)+" bytes, the limit (api-body-limit)")
}
