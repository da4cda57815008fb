package ops

import (
	"crypto/subtle"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
)

const (
	// tokenFile is a file in the data directory with the token that POST /leave needs. Only its owner may read it.
	tokenFile = "drain-token"
	// tokenHeader is the header that has the token.
	tokenHeader = "Drain-Token"
	// maxToken is more than a token has, in bytes.
	maxToken = 1 << 10
)

// WriteToken writes the token of the instance that has locked the data directory, for those who may read it there.
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

// Authorize gives a request to POST /leave the token of the instance with the data directory.
func Authorize(r *http.Request, dataDir string) error {
	token, err := os.ReadFile(filepath.Join(dataDir, tokenFile))
	if err != nil {
		return fmt.Errorf("read the instance's token: %w", err)
	}
	if len(token) > maxToken {
		return fmt.Errorf("read the instance's token: %s is too large", tokenFile)
	}
	r.Header.Set(tokenHeader, strings.TrimSpace(string(token)))
	return nil
}

// authorized reports whether a request has the token.
func authorized(r *http.Request, token string) bool {
	return token != "" && subtle.ConstantTimeCompare([]byte(r.Header.Get(tokenHeader)), []byte(token)) == 1
}
