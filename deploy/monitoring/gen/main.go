// Command gen writes the files that come from the list in deploy/monitoring. "go generate
// ./deploy/monitoring" runs it.
package main

import (
	"fmt"
	"os"

	"github.com/waterclock/waterclock/deploy/monitoring"
)

func main() {
	if err := write("../grafana/"); err != nil { // go generate runs in the package's directory
		fmt.Fprintln(os.Stderr, "gen:", err)
		os.Exit(1)
	}
}

func write(dir string) error {
	all, err := monitoring.Dashboards()
	if err != nil {
		return err
	}
	for _, d := range all {
		model, err := d.JSON()
		if err != nil {
			return err
		}
		if err := os.WriteFile(dir+d.Name+".json", model, 0o644); err != nil {
			return err
		}
	}
	return nil
}
