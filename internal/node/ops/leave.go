package ops

import (
	"context"
	"fmt"
	"net/http"
	"time"
)

const (
	// leaveWithin is how long an instance may take to hand over unless the caller says otherwise, and maxLeave the
	// most that a caller may say.
	leaveWithin, maxLeave = 30 * time.Second, time.Hour
)

// OnLeave has the server take POST /leave: leave hands everything over, for as long as its context lasts, leaves the
// group and ends the process. The caller gets its answer, 200, when leave has returned. OnLeave is called before
// Listen.
//
// A caller needs the token, which it finds only in the instance's data directory. Its address proves nothing: behind a
// proxy or a sidecar every call seems local, also one from a web page.
func (s *Server) OnLeave(token string, leave func(ctx context.Context) error) {
	s.mux.HandleFunc("POST /leave", func(w http.ResponseWriter, r *http.Request) {
		if !hasToken(r, token) {
			http.Error(w, "needs the header "+tokenHeader+" with the content of "+tokenFile+" in the data directory",
				http.StatusForbidden)
			return
		}
		within := leaveWithin
		if text := r.URL.Query().Get("within"); text != "" {
			d, err := time.ParseDuration(text)
			if err != nil || d < 0 || d > maxLeave {
				http.Error(w, fmt.Sprintf("within is %q, needs a duration of 0s to %s", text, maxLeave),
					http.StatusBadRequest)
				return
			}
			within = d
		}
		s.log.Info("told to hand over and leave", "within", within)
		_ = http.NewResponseController(w).SetWriteDeadline(time.Time{}) // a server without deadlines needs none
		ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), within)
		defer cancel()
		if err := leave(ctx); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		}
	})
}
