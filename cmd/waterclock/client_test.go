package main

import (
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A port that speaks something else than the URL says is answered with what to name.
func TestWrongPorts(t *testing.T) {
	plain := httptest.NewServer(http.NotFoundHandler())
	defer plain.Close()
	secure := httptest.NewUnstartedServer(http.NotFoundHandler())
	secure.Config.ErrorLog = log.New(io.Discard, "", 0)
	secure.StartTLS()
	defer secure.Close()
	hangsUp := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		panic(http.ErrAbortHandler)
	}))
	defer hangsUp.Close()
	for base, want := range map[string]string{
		"https" + strings.TrimPrefix(plain.URL, "http"):  "speaks HTTP without TLS: name it with http://",
		"http" + strings.TrimPrefix(secure.URL, "https"): "speaks HTTPS: name it with https://",
		secure.URL:           "--ca names a file of the authorities that this machine does not know",
		hangsUp.URL:          "does not respond; does --url name an instance's API, and not a broker?",
		plain.URL:            "404 Not Found, which is not from its API; does --url name it?",
		"http://127.0.0.1:1": "dev has one, serve with --api; --url or WATERCLOCK_URL names it",
	} {
		code, _, stderr := runWith(&calls{}, nil, "", "status", "--url", base)
		if code != exitError || !strings.HasSuffix(strings.TrimSpace(stderr), want) {
			t.Errorf("%s: exit %d, %s, want %s", base, code, stderr, want)
		}
	}
}

func TestBadCallees(t *testing.T) {
	file := func(text string) string {
		path := filepath.Join(t.TempDir(), "file")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for want, c := range map[string]callee{
		"--url is":                   {URL: "127.0.0.1:8681"},
		"--url is \"http://a?b\"":    {URL: "http://a?b"},
		"--token-file: open":         {URL: "http://a", TokenFile: "/none"},
		"is empty":                   {URL: "http://a", TokenFile: file("\n")},
		"--user and --password-file": {URL: "http://a", PasswordFile: file("p")},
		"--token-file and --user":    {URL: "http://a", User: "u", PasswordFile: file("p"), TokenFile: file("t")},
		"has no certificate in PEM":  {URL: "https://a", CA: file("x")},
	} {
		if _, err := c.client(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %s", c, err, want)
		}
	}
}
