package importtest

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// root is the module's directory, seen from this one.
const root = "../.."

func TestModuleKeepsTheRules(t *testing.T) {
	readTree(t)
	pkgs := list(t)
	for _, v := range (checker{modulePath(t)}).check(pkgs) {
		t.Error(v)
	}
}

// list loads the module's packages; -e, since others may not compile today.
func list(t *testing.T) []Package {
	t.Helper()
	cmd := exec.Command("go", "list", "-e", "-json=ImportPath,Name,Imports,Deps", "./...")
	cmd.Dir = root
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("list the module: %v", err)
	}
	var pkgs []Package
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p Package
		switch err := d.Decode(&p); {
		case errors.Is(err, io.EOF):
			if len(pkgs) == 0 {
				t.Fatal("the module has no packages")
			}
			return pkgs
		case err != nil:
			t.Fatalf("read the list: %v", err)
		}
		pkgs = append(pkgs, p)
	}
}

func modulePath(t *testing.T) string {
	t.Helper()
	cmd := exec.Command("go", "list", "-m")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("name the module: %v", err)
	}
	return strings.TrimSpace(string(out))
}

// readTree looks at every Go file, so that go test's cache knows that this test
// depends on them: it does not see what the go command reads.
func readTree(t *testing.T) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && strings.HasPrefix(d.Name(), ".") && path != root:
			return filepath.SkipDir
		case strings.HasSuffix(path, ".go"):
			_, err = os.Stat(path)
		}
		return err
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // a file that somebody removes just now
		t.Fatalf("walk the module: %v", err)
	}
}
