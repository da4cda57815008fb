package ops

import (
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
)

const (
	// tokenFile is a file in the data directory with the token that POST /leave needs. Only the directory's owner can
	// read it.
	tokenFile = "drain-token"
	// tokenHeader is the header that has the token.
	tokenHeader = "Drain-Token"
	// maxToken bounds what is read of the file, in bytes. A token is shorter.
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
