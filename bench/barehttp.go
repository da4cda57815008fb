package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock"
)

// bareLinger is the linger of the service's own producer of requests.
const bareLinger = time.Millisecond

// serveHTTP answers on the loopback interface until in ends, which the bench closes after the measurement.
func (b *bare) serveHTTP(ctx context.Context, ready func(addr string) error, in io.Reader) error {
	var handler http.HandlerFunc
	switch b.Kind {
	case kindCommit:
		s, err := b.newStepper(ctx, b.Name)
		if err != nil {
			return err
		}
		defer s.close()
		handler = b.committer(s)
	case kindProduce:
		cl, err := newClient(b.cfg, b.log, kgo.RequiredAcks(kgo.AllISRAcks()), kgo.ProducerLinger(bareLinger))
		if err != nil {
			return err
		}
		defer cl.Close()
		handler = b.producer(cl)
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	stop, err := b.profiled()
	if err != nil {
		return err
	}
	defer stop()
	s := &http.Server{Handler: handler, ReadHeaderTimeout: callTimeout}
	over := make(chan error, 1)
	go func() { over <- s.Serve(l) }()
	err = ready(l.Addr().String())
	_, _ = io.Copy(io.Discard, in)
	if err = errors.Join(err, s.Close()); err != nil {
		return err
	}
	if err := <-over; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// producer writes a record for each call: the path is its key.
func (b *bare) producer(cl *kgo.Client) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err == nil {
			rec := &kgo.Record{Topic: b.In, Key: []byte(strings.TrimPrefix(r.URL.Path, "/")), Value: body,
				Headers: []kgo.RecordHeader{
					{Key: waterclock.HeaderAfter, Value: []byte(r.Header.Get(waterclock.HeaderAfter))},
					{Key: waterclock.HeaderTargetTopic, Value: []byte(r.Header.Get(waterclock.HeaderTargetTopic))},
				}}
			err = cl.ProduceSync(r.Context(), rec).FirstErr()
		}
		b.respond(w, err)
	}
}

// committer commits a transaction for each call: what a step of one timer must write.
func (b *bare) committer(s *stepper) http.HandlerFunc {
	var mu sync.Mutex // guards s and position
	var position int64
	return func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		position++
		rec := &kgo.Record{Topic: b.State, Key: []byte(strings.TrimPrefix(r.URL.Path, "/")), Value: body}
		if err == nil {
			err = s.step(r.Context(), map[int32]int64{0: position}, []*kgo.Record{rec})
		}
		b.respond(w, err)
	}
}

func (b *bare) respond(w http.ResponseWriter, err error) {
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.WriteHeader(http.StatusCreated)
	_, _ = w.Write(b.Answer)
}
