package targets

import "context"

// Within calls ask and waits for its answer until ctx ends. kgo looks at the context of a request only once there
// is a connection, and an unresponsive broker may accept one and not answer its handshake. An answer that
// is not waited for any more is dropped; ask returns at the latest when kgo gives the connection up, or the
// client is closed.
func Within[T any](ctx context.Context, ask func() (T, error)) (T, error) {
	type answer struct {
		it  T
		err error
	}
	answers := make(chan answer, 1)
	go func() {
		it, err := ask()
		answers <- answer{it, err}
	}()
	select {
	case a := <-answers:
		return a.it, a.err
	case <-ctx.Done():
		return *new(T), ctx.Err() // not its cause: a lane's commit looks at that
	}
}
