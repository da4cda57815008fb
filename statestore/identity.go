package statestore

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strconv"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"
)

const (
	identityFile   = "STORE"
	identityTitle  = "waterclock store"
	identityFormat = 1

	// maxIdentity bounds the size of an identity file, in bytes.
	maxIdentity = 4096

	noCluster = "-"
)

// identity is the content of the STORE file, which doc.go shows. Its format covers the whole directory, including
// Pebble's own format.
type identity struct {
	format  int
	store   string // 32 hex digits, random, fixed for the directory's life
	cluster string // Kafka cluster ID, empty if not bound yet
}

func newIdentity() identity {
	var b [16]byte
	rand.Read(b[:]) // never fails
	return identity{format: identityFormat, store: hex.EncodeToString(b[:])}
}

func (i identity) String() string {
	cluster := i.cluster
	if cluster == "" {
		cluster = noCluster
	}
	return fmt.Sprintf("%s\nformat %d\nstore %s\ncluster %s\n", identityTitle, i.format, i.store, cluster)
}

// parseIdentity reads a STORE file. Errors wrap ErrNewerFormat, which the first two lines tell, or
// ErrForeignDirectory.
func parseIdentity(text string) (i identity, err error) {
	lines := strings.Split(text, "\n")
	if len(lines) < 2 || lines[0] != identityTitle {
		return i, fmt.Errorf("no %q in the first line: %w", identityTitle, ErrForeignDirectory)
	}
	format, _ := strings.CutPrefix(lines[1], "format ")
	if i.format, err = strconv.Atoi(format); err != nil || i.format < 1 {
		return i, fmt.Errorf("format %q: %w", format, ErrForeignDirectory)
	}
	if i.format > identityFormat {
		return i, fmt.Errorf("format %d, this version knows %d: %w", i.format, identityFormat, ErrNewerFormat)
	}
	if len(lines) != 5 || lines[4] != "" {
		return i, fmt.Errorf("%d lines: %w", len(lines), ErrForeignDirectory)
	}
	var okStore, okCluster bool
	i.store, okStore = strings.CutPrefix(lines[2], "store ")
	i.cluster, okCluster = strings.CutPrefix(lines[3], "cluster ")
	if i.cluster == noCluster {
		i.cluster = ""
	} else if !validCluster(i.cluster) {
		okCluster = false
	}
	if !okStore || !okCluster || i.store == "" {
		return i, fmt.Errorf("lines 3 and 4 of %s: %w", identityFile, ErrForeignDirectory)
	}
	return i, nil
}

// validCluster reports whether id can stand in one line and is not the dash.
func validCluster(id string) bool {
	return id != "" && id != noCluster && len(id) <= 256 && !strings.ContainsAny(id, " \t\r\n\x00")
}

// readIdentity returns nil if the directory has no STORE file.
func readIdentity(fsys vfs.FS, dir string) (*identity, error) {
	f, err := fsys.Open(fsys.PathJoin(dir, identityFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxIdentity))
	if err != nil {
		return nil, err
	}
	i, err := parseIdentity(string(text))
	return &i, err
}

// write replaces the STORE file. After a crash there is the old one or the new one.
func (i identity) write(fsys vfs.FS, dir string) error {
	name := fsys.PathJoin(dir, identityFile)
	f, err := fsys.Create(name+".new", vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	_, err = f.Write([]byte(i.String()))
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := fsys.Rename(name+".new", name); err != nil {
		return err
	}
	return syncDir(fsys, dir)
}

func syncDir(fsys vfs.FS, dir string) error {
	d, err := fsys.OpenDir(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
