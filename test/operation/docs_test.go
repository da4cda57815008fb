package operation

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const root = "../.."

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
