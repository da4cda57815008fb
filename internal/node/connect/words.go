package connect

import (
	"context"
	"errors"
	"net"
	"os"
	"strings"
	"syscall"
	"unicode"
	"unicode/utf8"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// looksHTTP is part of kgo's error for an answer that is one of HTTP.
const looksHTTP = "beginning of an HTTP response"

// Words returns the text of an error for people: what a broker's code means in place of the code, and the cause of a
// network error in place of the calls that it went through.
func Words(err error) string {
	if err == nil {
		return ""
	}
	text := err.Error()
	leaves(err, func(leaf error, words string) { text = strings.ReplaceAll(text, leaf.Error(), words) })
	return strings.ReplaceAll(text, dialFailed+": ", "")
}

// leaves calls fn for the parts of an error that have other words. The outermost part counts.
func leaves(err error, fn func(leaf error, words string)) {
	if err == nil {
		return
	}
	if words := plainWords(err); words != "" {
		fn(err, words)
		return
	}
	switch e := err.(type) { //nolint:errorlint // this link of the chain
	case interface{ Unwrap() error }:
		leaves(e.Unwrap(), fn)
	case interface{ Unwrap() []error }:
		for _, part := range e.Unwrap() {
			leaves(part, fn)
		}
	}
}

// plainWords returns the words for one error, not for what it wraps; "" if its own text is good.
func plainWords(err error) string {
	switch e := err.(type) { //nolint:errorlint // this link of the chain
	case *kerr.Error:
		return sentence(e.Description)
	case *net.DNSError:
		if e.IsNotFound {
			return "there is no host " + e.Name
		}
		return "the name " + e.Name + " cannot be looked up: " + e.Err
	case *net.OpError:
		if inner := plainWords(e.Err); inner != "" {
			return inner
		}
		if call, ok := e.Err.(*os.SyscallError); ok { //nolint:errorlint // this link of the chain
			return call.Err.Error()
		}
		if e.Timeout() {
			return "no answer in time"
		}
		return e.Err.Error()
	case syscall.Errno:
		return ""
	}
	switch {
	//nolint:errorlint // this link of the chain
	case err == context.DeadlineExceeded, err == os.ErrDeadlineExceeded, err == kgo.ErrRecordTimeout:
		return "no answer in time"
	case strings.Contains(err.Error(), looksHTTP) && errors.Unwrap(err) == nil:
		return "that port speaks HTTP, not Kafka"
	}
	return ""
}

// sentence returns a broker's description as a part of a sentence.
func sentence(description string) string {
	text := strings.TrimSuffix(strings.TrimSpace(description), ".")
	first, size := utf8.DecodeRuneInString(text)
	second, _ := utf8.DecodeRuneInString(text[size:])
	if unicode.IsUpper(first) && !unicode.IsUpper(second) {
		return string(unicode.ToLower(first)) + text[size:]
	}
	return text
}
