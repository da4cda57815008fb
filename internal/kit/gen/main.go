// Command gen writes the files that come from the list in internal/kit. "go generate
// ./internal/kit" runs it.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/waterclock/waterclock/internal/kit"
)

func main() {
	if err := write("../.."); err != nil { // go generate runs in the package's directory
		fmt.Fprintln(os.Stderr, "gen:", err)
		os.Exit(1)
	}
}

func write(root string) error {
	files, err := kit.Files()
	if err != nil {
		return err
	}
	for name, content := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, content, 0o644); err != nil {
			return err
		}
	}
	return nil
}
