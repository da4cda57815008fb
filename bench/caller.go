package bench

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http/httputil"
	"strconv"
	"time"
)

// callTimeout bounds one call over HTTP.
const callTimeout = time.Minute

// caller makes calls over one kept connection, one after the other. It knows as much of
// HTTP/1.1 as that takes: net/http's client would use as much of the processors as what is
// measured, and they are the same ones.
type caller struct {
	conn   net.Conn
	r      *bufio.Reader
	call   []byte       // scratch
	answer bytes.Buffer // scratch
}

func newCaller(ctx context.Context, addr string) (*caller, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("call %s: %w", addr, err)
	}
	return &caller{conn: conn, r: bufio.NewReader(conn)}, nil
}

func (c *caller) close() { _ = c.conn.Close() }

// request is one call. Header is whole lines, each with its CRLF.
type request struct {
	method, path, header string
	body                 []byte
}

// do makes a call. What it returns holds until the next one.
func (c *caller) do(q *request) (status int, body []byte, err error) {
	_ = c.conn.SetDeadline(time.Now().Add(callTimeout)) // of a TCP connection always works
	b := append(c.call[:0], q.method...)
	b = append(append(append(b, ' '), q.path...), " HTTP/1.1\r\nHost: 127.0.0.1\r\n"...)
	b = append(b, q.header...)
	if q.method != "GET" {
		b = append(strconv.AppendInt(append(b, "Content-Length: "...), int64(len(q.body)), 10), "\r\n"...)
	}
	c.call = append(append(b, "\r\n"...), q.body...)
	if _, err = c.conn.Write(c.call); err == nil {
		status, body, err = c.read()
	}
	if err != nil {
		err = fmt.Errorf("%s %s: %w", q.method, q.path, err)
	}
	return status, body, err
}

// read reads an answer that has a length or comes in chunks.
func (c *caller) read() (status int, body []byte, err error) {
	line, err := c.line()
	if err != nil {
		return 0, nil, err
	}
	if len(line) < len("HTTP/1.1 200") {
		return 0, nil, fmt.Errorf("the answer begins with %q", line)
	}
	if status, err = strconv.Atoi(string(line[9:12])); err != nil {
		return 0, nil, fmt.Errorf("the answer begins with %q", line)
	}
	length, chunked := int64(0), false
	for {
		if line, err = c.line(); err != nil {
			return 0, nil, err
		}
		if len(line) == 0 {
			break
		}
		name, value, _ := bytes.Cut(line, []byte(": "))
		switch {
		case bytes.EqualFold(name, []byte("Content-Length")):
			if length, err = strconv.ParseInt(string(value), 10, 64); err != nil {
				return 0, nil, fmt.Errorf("the answer has a length of %q", value)
			}
		case bytes.EqualFold(name, []byte("Transfer-Encoding")):
			chunked = bytes.EqualFold(value, []byte("chunked"))
		}
	}
	c.answer.Reset()
	if !chunked {
		_, err = io.CopyN(&c.answer, c.r, length)
		return status, c.answer.Bytes(), err
	}
	if _, err = c.answer.ReadFrom(httputil.NewChunkedReader(c.r)); err == nil {
		_, err = c.line() // behind the last chunk
	}
	return status, c.answer.Bytes(), err
}

// line is the next one, without its end.
func (c *caller) line() ([]byte, error) {
	line, err := c.r.ReadSlice('\n')
	return bytes.TrimRight(line, "\r\n"), err
}
