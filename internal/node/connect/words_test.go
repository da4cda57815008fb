package connect

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/node/config"
)

// People read the meaning of a code, and the failure, not codes and calls.
func TestWords(t *testing.T) {
	refused := &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	for _, c := range []struct {
		name string
		err  error
		want string
	}{
		{"nil", nil, ""},
		{"our own", errors.New("topic orders was deleted"), "topic orders was deleted"},
		{"code", fmt.Errorf("send to timers: %w", kerr.MessageTooLarge),
			"send to timers: the request included a message larger than the max message size the server will accept"},
		{"joined codes",
			errors.Join(fmt.Errorf("a: %w", kerr.NotController), fmt.Errorf("b: %w", kerr.PolicyViolation)),
			"a: this is not the correct controller for this cluster\n" +
				"b: request parameters do not satisfy the configured policy"},
		{"refused", fmt.Errorf("no broker: %s: %w", dialFailed, refused), "no broker: connection refused"},
		{"no such host",
			fmt.Errorf("x: %w", &net.OpError{Op: "dial", Err: &net.DNSError{Name: "kafka", IsNotFound: true}}),
			"x: there is no host kafka"},
		{"timeout", fmt.Errorf("list the ends of orders: %w", context.DeadlineExceeded),
			"list the ends of orders: no answer in time"},
		{"records", fmt.Errorf("send to timers: %w", kgo.ErrRecordTimeout), "send to timers: no answer in time"},
		{"read timeout", &net.OpError{Op: "read", Err: os.ErrDeadlineExceeded}, "no answer in time"},
		{"HTTP", errors.New("invalid large response size 1 > limit; the four size bytes are 'HTTP', the " + looksHTTP),
			"that port speaks HTTP, not Kafka"},
		{"no file", &os.PathError{Op: "open", Path: "/x", Err: syscall.ENOENT}, "open /x: no such file or directory"},
	} {
		if got := Words(c.err); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

// A port without TLS is found out before the handshake has timed out, though it answers nothing.
func TestTLSToAPlainPort(t *testing.T) {
	c, _ := kafkatest.Fake(t, kfake.NumBrokers(1))
	cfg := config.Default()
	cfg.Brokers, cfg.TLS = c.ListenAddrs(), true
	began := time.Now()
	cl, err := Open(t.Context(), &cfg)
	if err == nil {
		cl.Close()
		t.Fatal("a connection")
	}
	if !strings.Contains(err.Error(), "do not speak TLS on that port: name their TLS port, or leave out --tls") {
		t.Errorf("%v after %v", err, time.Since(began))
	}
}

// A port that answers neither is no port without TLS; nor is one with TLS that is only slow.
func TestTLSToASilentPort(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(io.Discard, c) }() // ends with the connection
		}
	}()
	ctx, cancel := context.WithTimeout(t.Context(), plainAfter+plainTimeout+200*time.Millisecond)
	defer cancel()
	_, err = dialTLS(ctx, "tcp", l.Addr().String(), &tls.Config{ServerName: "x"})
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
}
