package beats

// Signal wakes a goroutine that receives from it. A signal that is sent before the goroutine looks is not lost, and
// several of them count as one.
type Signal chan struct{}

// NewSignal returns a signal that was not sent.
func NewSignal() Signal { return make(Signal, 1) }

// Send never blocks.
func (s Signal) Send() {
	select {
	case s <- struct{}{}:
	default:
	}
}
