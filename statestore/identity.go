package statestore

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"
)

const (
	identityFile   = "STORE"
	identityText   = "waterclock store\nformat %d\nstore %s\ncluster %s\n"
	identityFormat = 1

	// maxIdentity bounds what is read of an identity file, in bytes.
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
	return fmt.Sprintf(identityText, i.format, i.store, cluster)
}

// parseIdentity reads a STORE file. Errors wrap ErrNewerFormat, which the first two lines tell, or
// ErrForeignDirectory.
func parseIdentity(text string) (i identity, err error) {
	_, err = fmt.Sscanf(text, identityText, &i.format, &i.store, &i.cluster)
	if i.format > identityFormat {
		return i, fmt.Errorf("format %d, this version knows %d: %w", i.format, identityFormat, ErrNewerFormat)
	}
	if i.cluster == noCluster {
		i.cluster = ""
	} else if err == nil && !validCluster(i.cluster) {
		err = fmt.Errorf("cluster ID %q", i.cluster)
	}
	if err == nil && i.String() != text { // Sscanf takes what is nearly right
		err = fmt.Errorf("not what a store of format %d has", i.format)
	}
	if err != nil {
		return i, fmt.Errorf("%s: %w: %w", identityFile, err, ErrForeignDirectory)
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
