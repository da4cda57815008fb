package operation

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const root = "../../.."

var (
	registered = regexp.MustCompile(`(?:Name: +|(?:NewDesc|newLateness|Counters?|Gauges?|GaugeFunc|Histograms?)\()"(waterclock_[a-z0-9_]*[a-z0-9])"`)
	ofStore    = regexp.MustCompile(`\badd\("([a-z0-9_]+)", "`)
	documented = regexp.MustCompile("`(waterclock_[a-z0-9_]+)[{`]")
)

// sources calls see with the text of every file of the service that is no test.
func sources(t *testing.T, see func(path, text string)) {
	t.Helper()
	for _, dir := range []string{"intake", "statestore", "delaytopics", "internal"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, e fs.DirEntry, err error) error {
			if err != nil || e.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			b, err := os.ReadFile(path)
			see(path, string(b))
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// docs/OPERATIONS.md and the code name the same metrics.
func TestEveryMetricIsDocumented(t *testing.T) {
	inCode, inDocs := map[string]bool{}, map[string]bool{}
	sources(t, func(path, text string) {
		for _, m := range registered.FindAllStringSubmatch(text, -1) {
			inCode[m[1]] = true
		}
		if strings.Contains(path, "statestore") {
			for _, m := range ofStore.FindAllStringSubmatch(text, -1) {
				inCode["waterclock_store_"+m[1]] = true
			}
		}
	})
	b, err := os.ReadFile(filepath.Join(root, "docs", "OPERATIONS.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, tables, _ := strings.Cut(string(b), "## Metrics")
	for _, m := range documented.FindAllStringSubmatch(tables, -1) {
		inDocs[m[1]] = true
	}
	if len(inCode) < 50 {
		t.Fatalf("found %d metrics only: the test looks in the wrong way", len(inCode))
	}
	for name := range inCode {
		if !inDocs[name] {
			t.Errorf("%s is not in docs/OPERATIONS.md", name)
		}
	}
	for name := range inDocs {
		if !inCode[name] {
			t.Errorf("docs/OPERATIONS.md has %s, the code does not", name)
		}
	}
}
