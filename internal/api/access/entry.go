package access

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/goccy/go-yaml"
	"golang.org/x/crypto/bcrypt"
)

// Limits of passwords and tokens.
const (
	MinPassword = 12 // bytes: the hash may be attacked offline if the file gets out
	MaxPassword = 72 // bytes: bcrypt ignores the rest
	tokenBytes  = 32
	tokenPrefix = "wct_" // so that tools that look for secrets find one
	// A token shorter than this cannot have 128 random bits. It is rejected even if the file has its hash, so that
	// nobody uses a word as token.
	minToken = 22
)

// PasswordEntry returns an entry of the file of callers for a caller with a password.
func PasswordEntry(name string, password []byte, g Grant) ([]byte, error) {
	if len(password) < MinPassword || len(password) > MaxPassword {
		return nil, fmt.Errorf("password has %d bytes, needs %d to %d", len(password), MinPassword, MaxPassword)
	}
	hash, err := bcrypt.GenerateFromPassword(password, bcrypt.DefaultCost)
	if err != nil {
		return nil, fmt.Errorf("hash password: %w", err)
	}
	return entry(name, g, yaml.MapItem{Key: "password", Value: string(hash)})
}

// TokenEntry returns an entry of the file of callers for a caller with a token.
func TokenEntry(name, token string, g Grant) ([]byte, error) {
	if len(token) < minToken {
		return nil, errors.New("token is too short")
	}
	hash := sha256.Sum256([]byte(token))
	return entry(name, g, yaml.MapItem{Key: "tokens", Value: []string{tokenScheme + hex.EncodeToString(hash[:])}})
}

// NewToken makes a bearer token.
func NewToken() string {
	var b [tokenBytes]byte
	_, _ = rand.Read(b[:]) // never fails
	return tokenPrefix + base64.RawURLEncoding.EncodeToString(b[:])
}

// entry writes an entry and reads it back, so that a printed entry is never rejected.
func entry(name string, g Grant, credential yaml.MapItem) ([]byte, error) {
	if err := CheckName(name); err != nil {
		return nil, err
	}
	if err := g.check(); err != nil {
		return nil, err
	}
	grant := yaml.MapSlice{{Key: "role", Value: g.Role.String()}, {Key: "topic", Value: g.Topic}}
	if g.IDPrefix != "" {
		grant = append(grant, yaml.MapItem{Key: "id-prefix", Value: g.IDPrefix})
	}
	file := yaml.MapSlice{{Key: "callers", Value: yaml.MapSlice{{Key: name, Value: yaml.MapSlice{
		credential, {Key: "grants", Value: []yaml.MapSlice{grant}},
	}}}}}
	text, err := yaml.MarshalWithOptions(file, yaml.IndentSequence(true))
	if err != nil {
		return nil, fmt.Errorf("write entry of %s: %w", name, err)
	}
	if _, err := parseCallers(text); err != nil {
		return nil, fmt.Errorf("write entry of %s: %w", name, err)
	}
	return text[len("callers:\n"):], nil
}
