package ops

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
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
		s.log.Info("asked to hand over and leave", "limit", within)
		_ = http.NewResponseController(w).SetWriteDeadline(time.Time{}) // a server without deadlines needs none
		ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), within)
		defer cancel()
		if err := leave(ctx); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		}
	})
}

const (
	// tokenFile is a file in the data directory with the token that POST /leave needs. Only the directory's owner can
	// read it.
	tokenFile = "drain-token"
	// tokenHeader is the header that has the token.
	tokenHeader = "Drain-Token"
	// maxToken bounds the bytes that are read of the file. A token is shorter.
	maxToken = 1 << 10
)

// WriteToken writes the token of the instance that has locked the data directory, for users with the right to read it
// there.
func WriteToken(dataDir, token string) error {
	f, err := os.CreateTemp(dataDir, tokenFile+"-") // with mode 0600
	if err != nil {
		return err
	}
	_, err = f.WriteString(token)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), filepath.Join(dataDir, tokenFile))
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}

// AddToken adds the token of the instance with the data directory to an outgoing POST /leave.
func AddToken(r *http.Request, dataDir string) error {
	token, err := readToken(filepath.Join(dataDir, tokenFile))
	if err != nil {
		return fmt.Errorf("read the instance's token: %w", err)
	}
	r.Header.Set(tokenHeader, strings.TrimSpace(string(token)))
	return nil
}

func readToken(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	token, err := io.ReadAll(io.LimitReader(f, maxToken+1))
	if err == nil && len(token) > maxToken {
		err = fmt.Errorf("%s is too large", tokenFile)
	}
	return token, err
}

// hasToken reports whether a request has the token.
func hasToken(r *http.Request, token string) bool {
	return token != "" && subtle.ConstantTimeCompare([]byte(r.Header.Get(tokenHeader)), []byte(token)) == 1
}
