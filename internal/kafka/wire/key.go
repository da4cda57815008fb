package wire

import "fmt"

// Kind is the first byte of every changelog key. It separates timers, whose key goes on with the ID, from
// checkpoints and claims, whose key is one byte.
type Kind byte

// The kinds.
const (
	KindTimer      Kind = 1
	KindCheckpoint Kind = 2
	KindClaim      Kind = 3

	// firstText is the first byte that a text may begin with. No version has kinds from there on, so a key that begins
	// so is another program's, and no instance has to make room for a newer one.
	firstText = 0x20
)

// TimerKey appends the changelog key of the timer to dst.
func TimerKey(dst, id []byte) []byte {
	return append(append(dst, byte(KindTimer)), id...)
}

// CheckpointKey returns the changelog key of checkpoints, a new slice.
func CheckpointKey() []byte { return []byte{byte(KindCheckpoint)} }

// ClaimKey returns the changelog key of claims, a new slice.
func ClaimKey() []byte { return []byte{byte(KindClaim)} }

// ParseKey returns the kind of a changelog key and, if it is a timer's, the ID, which aliases key. Errors wrap
// ErrNewerFormat, for a kind that this version does not know, or ErrCorrupt.
func ParseKey(key []byte) (Kind, []byte, error) {
	if len(key) == 0 {
		return 0, nil, fmt.Errorf("parse changelog key: empty: %w", ErrCorrupt)
	}
	kind, rest := Kind(key[0]), key[1:]
	switch {
	case kind >= firstText:
		return 0, nil, fmt.Errorf("parse changelog key: %.40q is another program's: %w", key, ErrCorrupt)
	case kind > KindClaim:
		return 0, nil, fmt.Errorf("parse changelog key: kind %d: %w", kind, ErrNewerFormat)
	case kind == KindTimer && len(rest) > 0:
		return kind, rest, nil
	case kind > KindTimer && len(rest) == 0:
		return kind, nil, nil
	}
	return 0, nil, fmt.Errorf("parse changelog key: kind %d, %d bytes: %w", kind, len(key), ErrCorrupt)
}
