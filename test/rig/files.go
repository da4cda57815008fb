package rig

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/waterclock/waterclock/internal/api/access"
)

// File writes a file to a directory of its own, and returns its path.
func File(t testing.TB, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	Put(t, path, text)
	return path
}

// Put writes a file at a path.
func Put(t testing.TB, path, text string) {
	t.Helper()
	must(t, os.WriteFile(path, []byte(text+"\n"), 0o600))
}

// Users writes a file of callers, and returns their tokens by name.
func Users(t testing.TB, callers map[string]access.Grant) (tokens map[string]string, path string) {
	t.Helper()
	tokens = make(map[string]string)
	text := "callers:\n"
	for name, grant := range callers {
		tokens[name] = access.NewToken()
		entry, err := access.TokenEntry(name, tokens[name], grant)
		must(t, err)
		text += string(entry)
	}
	return tokens, File(t, "users.yaml", text)
}
