package access

import "net/http"

// Recorder notes the status of an answer: the first that is final, for an answer has one. What
// is set after that goes nowhere.
type Recorder struct {
	http.ResponseWriter

	status int
	begun  func() // is called when the answer begins; may be nil
}

// Status is that of the answer; 0: it has not begun.
func (r *Recorder) Status() int { return r.status }

// WriteHeader implements http.ResponseWriter.
func (r *Recorder) WriteHeader(status int) {
	if r.status != 0 {
		return
	}
	if status >= http.StatusOK { // else it is merely informational
		r.begin(status)
	}
	r.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (r *Recorder) Write(b []byte) (int, error) {
	if r.status == 0 {
		r.begin(http.StatusOK)
	}
	return r.ResponseWriter.Write(b)
}

func (r *Recorder) begin(status int) {
	if r.status = status; r.begun != nil {
		r.begun()
	}
}

// Final is the status in the end, where the handler has ended or panicked.
func (r *Recorder) Final(ended bool) int {
	switch {
	case !ended:
		return http.StatusInternalServerError
	case r.status == 0:
		return http.StatusOK // as the server answers for who wrote nothing
	}
	return r.status
}

// Flush is for those who look for an http.Flusher in place of a ResponseController.
func (r *Recorder) Flush() { _ = http.NewResponseController(r.ResponseWriter).Flush() }

// Unwrap is for http.ResponseController.
func (r *Recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }
