package access

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"hash"
	"io"
	"net/http"
	"net/textproto"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Limits of the file of keys.
const (
	minKey  = 32 // characters of a key
	maxKeys = 2  // the first one signs, both are accepted, so that a key can be replaced
)

// CheckKeys returns what is wrong with a file of keys.
func CheckKeys(path string) error {
	text, err := readFile(path)
	if err != nil {
		return err
	}
	_, err = parseKeys(text)
	return err
}

// parseKeys reads one key for each line that is not empty.
func parseKeys(text []byte) (keys [][]byte, err error) {
	for line := range bytes.Lines(text) {
		if line = bytes.TrimSpace(line); len(line) == 0 {
			continue
		}
		if len(line) < minKey {
			return nil, fmt.Errorf("key %d has %d characters, needs %d or more, such as openssl rand -base64 32 prints",
				len(keys)+1, len(line), minKey)
		}
		keys = append(keys, line)
	}
	if len(keys) < 1 || len(keys) > maxKeys {
		return nil, fmt.Errorf("it has %d keys, needs 1 or %d, each on a line of its own", len(keys), maxKeys)
	}
	return keys, nil
}

// forwardHeader carries the signature of a forwarded call:
//
//	v1.<ms since 1970>.<nonce>.<caller's name>.<SHA-256 of the body>.<HMAC-SHA256>
//
// in decimal and in base64url without padding. It has the body's hash, so that a wrong signature is rejected before the
// body is read.
const (
	forwardHeader  = "Waterclock-Forward"
	forwardVersion = "v1"
	nonceBytes     = 16
)

// forwardWindow is how far the clocks of two instances may be apart, including the time that a call takes to arrive.
const forwardWindow = 30 * time.Second

// maxForwardHeader is longer than any header that we write.
const maxForwardHeader = 512

// signed is what a signature covers besides the request.
type signed struct {
	at    time.Time // to the millisecond
	nonce [nonceBytes]byte
	name  string
	body  [sha256.Size]byte
}

// sign returns the HMAC-SHA256 of everything that makes the request what it is: method, address, path and query as in
// the request line, headers that mean something to the API, and what the header says. The path is signed in its escaped
// form, byte for byte; it is interpreted only after the signature was verified.
//
// Each part follows its length, so no two requests are the same bytes. Any
// header that the API reads must be in [signedHeader]. Headers that proxies add are not, so proxies
// may add them.
func sign(key []byte, method, host, target string, h http.Header, s signed) []byte {
	mac := hmac.New(sha256.New, key)
	part(mac, "waterclock-forward-"+forwardVersion)
	part(mac, method)
	part(mac, host)
	part(mac, target)
	var names []string
	for name := range h {
		if signedHeader(name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	part(mac, strconv.Itoa(len(names)))
	for _, name := range names {
		part(mac, name)
		part(mac, strconv.Itoa(len(h[name])))
		for _, v := range h[name] {
			part(mac, textproto.TrimString(v)) // as it is sent
		}
	}
	part(mac, strconv.FormatInt(s.at.UnixMilli(), 10))
	part(mac, string(s.nonce[:]))
	part(mac, s.name)
	part(mac, string(s.body[:]))
	return mac.Sum(nil)
}

func part(h hash.Hash, s string) {
	_, _ = io.WriteString(h, strconv.Itoa(len(s))+":"+s) // never fails
}

// signedHeader reports whether a header, by its canonical name, can change what a call does.
func signedHeader(name string) bool {
	if name == forwardHeader {
		return false // it holds the signature
	}
	return strings.HasPrefix(name, "Timer-") || strings.HasPrefix(name, "Waterclock-") || slices.Contains([]string{
		"Accept", "Content-Encoding", "Content-Type", "Idempotency-Key", "If-Match", "If-None-Match",
		"Last-Event-Id", "Prefer",
	}, name)
}

func (s signed) header(mac []byte) string {
	b64 := base64.RawURLEncoding.EncodeToString
	return strings.Join([]string{
		forwardVersion, strconv.FormatInt(s.at.UnixMilli(), 10),
		b64(s.nonce[:]), b64([]byte(s.name)), b64(s.body[:]), b64(mac),
	}, ".")
}

var errForwardForm = errors.New("the header " + forwardHeader + " is not of the form that this version writes")

// parseForward reads the header. It checks only its form.
func parseForward(values []string) (s signed, mac []byte, err error) {
	if len(values) != 1 || len(values[0]) > maxForwardHeader {
		return s, nil, errForwardForm
	}
	parts := strings.Split(values[0], ".")
	if len(parts) != 6 || parts[0] != forwardVersion {
		return s, nil, errForwardForm
	}
	ms, err := strconv.ParseInt(parts[1], 10, 64)
	if err != nil {
		return s, nil, errForwardForm
	}
	s.at = time.UnixMilli(ms)
	var bin [4][]byte
	for i := range bin {
		if bin[i], err = base64.RawURLEncoding.Strict().DecodeString(parts[2+i]); err != nil {
			return s, nil, errForwardForm
		}
	}
	nonce, name, body, mac := bin[0], bin[1], bin[2], bin[3]
	if len(nonce) != nonceBytes || len(body) != sha256.Size || len(mac) != sha256.Size {
		return s, nil, errForwardForm
	}
	s.nonce, s.name, s.body = [nonceBytes]byte(nonce), string(name), [sha256.Size]byte(body)
	return s, mac, nil
}
