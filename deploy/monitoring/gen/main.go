// Command gen writes the files that come from the list in deploy/monitoring. "go generate
// ./deploy/monitoring" runs it.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/waterclock/waterclock/deploy/monitoring"
)

func main() {
	if err := write("../.."); err != nil { // go generate runs in the package's directory
		fmt.Fprintln(os.Stderr, "gen:", err)
		os.Exit(1)
	}
}

func write(root string) error {
	files, err := monitoring.Files()
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
