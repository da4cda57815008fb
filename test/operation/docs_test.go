package operation

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const root = "../.."

var (
	registered = regexp.MustCompile(
		`(?:Name: +|(?:NewDesc|newLateness|Counters?|Gauges?|GaugeFunc|Histograms?)\()"(waterclock_[a-z0-9_]*[a-z0-9])"`)
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

// docs/METRICS.md and the code name the same metrics.
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
	b, err := os.ReadFile(filepath.Join(root, "docs", "METRICS.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range documented.FindAllStringSubmatch(string(b), -1) {
		inDocs[m[1]] = true
	}
	if len(inCode) < 50 {
		t.Fatalf("found %d metrics only: the test looks in the wrong way", len(inCode))
	}
	for name := range inCode {
		if !inDocs[name] {
			t.Errorf("%s is not in docs/METRICS.md", name)
		}
	}
	for name := range inDocs {
		if !inCode[name] {
			t.Errorf("docs/METRICS.md has %s, the code does not", name)
		}
	}
}

var (
	fenced  = regexp.MustCompile("(?s)```.*?```")
	linked  = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ (.*)$`)
	inLink  = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
	noSlug  = regexp.MustCompile(`[^\p{L}\p{N}_ -]`)
)

// Each link of a document to a file or a heading of the repository leads there.
func TestDocumentsLinkToWhatIsThere(t *testing.T) {
	var pages []string
	for _, glob := range []string{"*.md", "docs/*.md", "docs/internals/*.md"} {
		found, err := filepath.Glob(filepath.Join(root, glob))
		if err != nil || found == nil {
			t.Fatalf("%s: %d pages, %v", glob, len(found), err)
		}
		pages = append(pages, found...)
	}
	links := 0
	for _, page := range pages {
		for _, m := range linked.FindAllStringSubmatch(pageText(t, page), -1) {
			if strings.HasPrefix(m[1], "https://") {
				continue
			}
			links++
			file, anchor, _ := strings.Cut(m[1], "#")
			to := page
			if file != "" {
				to = filepath.Join(filepath.Dir(page), file)
			}
			if _, err := os.Stat(to); err != nil {
				t.Errorf("%s links to %s: %v", page, m[1], err)
			} else if anchor != "" && !slices.Contains(anchors(pageText(t, to)), anchor) {
				t.Errorf("%s links to %s, and there is no such heading", page, m[1])
			}
		}
	}
	if links < 100 {
		t.Errorf("found %d links only: the test looks in the wrong way", links)
	}
}

// pageText returns a document without its code.
func pageText(t *testing.T, page string) string {
	t.Helper()
	b, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	return fenced.ReplaceAllString(string(b), "")
}

// anchors returns the names by which GitHub links to the headings of a document.
func anchors(text string) (all []string) {
	for _, m := range heading.FindAllStringSubmatch(text, -1) {
		plain := strings.ToLower(inLink.ReplaceAllString(m[1], "$1"))
		all = append(all, strings.ReplaceAll(noSlug.ReplaceAllString(plain, ""), " ", "-"))
	}
	return all
}
