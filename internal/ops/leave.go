package ops

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"time"
)

const (
	// leaveWithin is how long an instance may take to hand over unless the caller says otherwise, and maxLeave the
	// most that a caller may say.
	leaveWithin, maxLeave = 30 * time.Second, time.Hour
)

// OnLeave has the server take POST /leave from this machine: leave hands everything over, for as long as its context
// lasts, leaves the group and ends the process. The caller gets its answer, 200, when leave has returned. It is called
// before Listen.
func (s *Server) OnLeave(leave func(ctx context.Context) error) {
	s.mux.HandleFunc("POST /leave", func(w http.ResponseWriter, r *http.Request) {
		if !fromHere(r) {
			http.Error(w, "only a program on the machine of this instance may have it leave", http.StatusForbidden)
			return
		}
		if fromPage(r) {
			http.Error(w, "a web page may not have an instance leave", http.StatusForbidden)
			return
		}
		within := leaveWithin
		if text := r.URL.Query().Get("within"); text != "" {
			d, err := time.ParseDuration(text)
			if err != nil || d < 0 || d > maxLeave {
				http.Error(w, fmt.Sprintf("within is %q, needs a duration of 0s to %s", text, maxLeave), http.StatusBadRequest)
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

// fromPage reports whether a browser sends the request for a page. Any page that somebody opens on this machine can send
// it here. Browsers say so with each POST; programs do not.
func fromPage(r *http.Request) bool {
	return r.Header.Get("Origin") != "" || r.Header.Get("Sec-Fetch-Site") != ""
}

// fromHere reports whether a request comes from the machine that it goes to.
func fromHere(r *http.Request) bool {
	from, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return false
	}
	remote := net.ParseIP(from)
	to, _ := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	return remote != nil && (remote.IsLoopback() || to != nil && remote.Equal(to.IP))
}
