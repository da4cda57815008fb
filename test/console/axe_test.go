package console

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/waterclock/waterclock/internal/kafkatest/runs"
)

// axeVersion is that of axe-core, from npm.
const axeVersion = "4.14.1"

// axe is the source of axe-core, which looks for what keeps people from using a page. It is
// fetched once, into the user's cache directory.
func axe(t *testing.T) string {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	at := filepath.Join(cache, "waterclock", "tools", "axe-core-"+axeVersion+".js")
	if source, err := os.ReadFile(at); err == nil {
		return string(source)
	}
	if _, err := exec.LookPath("npm"); err != nil {
		const how = "there is no npm on this machine to fetch axe-core with: install it (Debian: apt-get install npm)"
		if os.Getenv(envRequire) == "1" {
			t.Fatal(how)
		}
		t.Skip(how)
	}
	dir := t.TempDir()
	fetch := exec.CommandContext(t.Context(), "npm", "pack", "--silent", "axe-core@"+axeVersion)
	fetch.Dir = dir
	if out, err := fetch.CombinedOutput(); err != nil {
		t.Fatalf("npm pack: %v\n%s", err, out)
	}
	source := unpack(t, filepath.Join(dir, "axe-core-"+axeVersion+".tgz"), "package/axe.min.js")
	if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(at+".new", source, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(at+".new", at); err != nil {
		t.Fatal(err)
	}
	return string(source)
}

// unpack reads one file of an archive.
func unpack(t *testing.T, archive, name string) []byte {
	t.Helper()
	f, err := os.Open(archive)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	unzipped, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	for files := tar.NewReader(unzipped); ; {
		h, err := files.Next()
		if errors.Is(err, io.EOF) {
			t.Fatalf("%s has no %s", archive, name)
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.Name == name {
			b, err := io.ReadAll(files)
			if err != nil {
				t.Fatal(err)
			}
			return b
		}
	}
}

// runAxe is what axe-core finds, once it is loaded.
const runAxe = `(async () => {
	const found = await axe.run({runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]});
	return found.violations.flatMap(v => v.nodes.map(n => v.id + " (" + v.help + "): " + n.html.slice(0, 200) + " " +
		"" + n.failureSummary)).join("\n");
})()`

// axe-core finds nothing on any page, in both themes, one wide and one narrow. That it finds
// something where there is something is seen first.
func TestAxeInABrowser(t *testing.T) {
	runs.NeedSlow(t)
	t.Parallel()
	browser(t)
	source := axe(t)
	s := start(t)
	s.seed()
	b := s.open()
	load := func() { eval[any](b, source+"\n;null") }
	b.visit("/")
	load()
	eval[any](b, `document.querySelector("h1").style.color = "#999"; document.documentElement.lang = ""; null`)
	if found := promise(b, runAxe); !strings.Contains(found, "html-has-lang") ||
		!strings.Contains(found, "color-contrast") {
		t.Fatalf("axe-core does not see a missing language and grey on white: %s", found)
	}
	b.Well("violates the following Content Security Policy") // the style was set by the test
	for _, look := range looks()[:2] {
		b.look(look.width, look.theme)
		for _, p := range pages() {
			b.visit(p.at)
			load()
			if found := promise(b, runAxe); found != "" {
				t.Errorf("%s, %s, %d pixels:\n%s", p.name, look.theme, look.width, found)
			}
		}
	}
}
