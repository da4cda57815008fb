package access

import "net/http"

// Recorder records the status of an answer, which is the first that is final. Later
// ones are dropped.
type Recorder struct {
	http.ResponseWriter

	status int
	begun  func() // called when the answer begins; may be nil
}

// Status returns the status of the answer; 0 if it has not begun.
func (r *Recorder) Status() int { return r.status }

// WriteHeader implements http.ResponseWriter.
func (r *Recorder) WriteHeader(status int) {
	if r.status != 0 {
		return
	}
	if status >= http.StatusOK { // otherwise it is only informational
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

// Final returns the status of an answer whose handler has ended or panicked.
func (r *Recorder) Final(ended bool) int {
	switch {
	case !ended:
		return http.StatusInternalServerError
	case r.status == 0:
		return http.StatusOK // as the server answers if nothing was written
	}
	return r.status
}

// Unwrap is for http.ResponseController.
func (r *Recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }
