//go:build planted

package simulation

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/waterclock/waterclock/internal/audit/history"
)

var (
	plantedFlag = flag.String("planted", "", "an expression for names of bugs, or for `name|what it breaks|test`")
	huntFlag    = flag.Duration("hunt", 10*time.Minute, "how long a planted bug is looked for")
	unitFlag    = flag.Bool("unit", false, "also run the unit tests of the packages that have a bug for the simulation")
	caughtFlag  = flag.String("caught", "", "a file of what was caught, to go on where an earlier run has stopped")
)

// TestPlanted plants one bug after another, and fails if one is not found by the test that must find it. It logs a
// table of what found each. Bugs that a test of their own finds come first: they are quick. Some of them:
//
//	go -C test test -tags planted ./simulation -run TestPlanted -v -timeout 0 -planted '19 A' -caught FILE -unit
func TestPlanted(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	chosen := regexp.MustCompile(*plantedFlag)
	all := slices.DeleteFunc(bugs(), func(b bug) bool {
		return !chosen.MatchString(strings.Join([]string{b.name, b.breaks, b.by}, "|"))
	})
	slices.SortStableFunc(all, func(a, b bug) int { return cmp.Compare(min(1, len(b.by)), min(1, len(a.by))) })
	book := readCaught(t)
	for _, b := range all {
		t.Run(b.name, func(t *testing.T) {
			p := planted{bug: b, root: root, dir: t.TempDir()}
			p.writeOverlay(t)
			c := book[b.name]
			if c.Plant != p.digest() {
				c = caught{Plant: p.digest()}
				find := p.simulate
				if b.by != "" {
					find = p.test
				}
				if find(t, &c); c.Said == "" {
					t.Errorf("ESCAPED %s, %s", c.By, c.After)
					return
				}
			}
			if *unitFlag && b.by == "" && c.Unit == "" {
				c.Unit = p.unit(t)
			}
			book[b.name] = c
			book.write(t)
			t.Log("CAUGHT ", p.row(c))
		})
	}
	var table strings.Builder
	for _, b := range bugs() {
		if c, ok := book[b.name]; ok {
			p := planted{bug: b}
			table.WriteString(p.row(c))
		}
	}
	t.Log("\n| bug | breaks | found by | after | unit tests |\n|---|---|---|---|---|\n" + table.String())
}

// caught is how a bug was caught.
type caught struct {
	Plant uint64 // the digest of what was planted
	By    string // a test; or a seed, and which one of the hunt it was
	After time.Duration
	Said  string // what fails, or the rules that are broken; "": it escaped
	Unit  string // the tests of its packages that fail, if they were run
}

// book is what was caught, by names of bugs.
type book map[string]caught

// readCaught reads what an earlier run has caught.
func readCaught(t *testing.T) book {
	all := make(book)
	text, err := os.ReadFile(*caughtFlag)
	if err == nil {
		err = json.Unmarshal(text, &all)
	}
	if *caughtFlag != "" && err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return all
}

func (b book) write(t *testing.T) {
	if *caughtFlag == "" {
		return
	}
	text, err := json.MarshalIndent(b, "", " ")
	if err == nil {
		err = os.WriteFile(*caughtFlag, text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// planted is a bug in the product.
type planted struct {
	bug
	root, dir string
}

// command returns one of the go command for a package of this module or of the product's, with the bug planted.
func (p *planted) command(what, dir string, args ...string) *exec.Cmd {
	module := p.root
	if below, ok := strings.CutPrefix(dir, "./test/"); ok {
		module, dir = filepath.Join(p.root, "test"), "./"+below
	}
	cmd := exec.Command("go", slices.Concat([]string{what, "-overlay", p.list()}, args, []string{dir})...)
	cmd.Dir = module
	return cmd
}

// row is a line of the table.
func (p *planted) row(c caught) string {
	by := c.By
	if p.by == "" {
		by += ": " + c.Said
	}
	return fmt.Sprintf("| %s | %s | %s | %.1f s | %s |\n", p.name, p.breaks, by, c.After.Seconds(), c.Unit)
}

// digest names what is planted.
func (p *planted) digest() uint64 { return xxhash.Sum64String(fmt.Sprint(p.bug)) }

// moreSeeds is how many seeds may show other violations alone while the rule that a bug breaks is looked for.
const moreSeeds = 10

// simulate runs seeds until one shows violations of the rule that the bug breaks, or a few show others.
func (p *planted) simulate(t *testing.T, c *caught) {
	binary := filepath.Join(p.dir, "simulation.test")
	if out, err := p.command("test", "./test/simulation", "-c", "-o", binary).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	seeds, others := 0, 0
	for began := time.Now(); ; others++ {
		ran, seed, rules := p.hunt(t, binary, *huntFlag-time.Since(began))
		if seeds += ran; seed == "" {
			c.By = cmp.Or(c.By, fmt.Sprintf("%d seeds", seeds))
			return
		}
		if c.Said == "" || slices.Contains(rules, p.breaks) {
			c.By = fmt.Sprintf("seed %s, number %d", seed, seeds)
			c.Said, c.After = strings.Join(rules, ", "), time.Since(began)
		}
		if slices.Contains(rules, p.breaks) || others >= moreSeeds {
			return
		}
	}
}

// hunt runs fresh seeds until one shows violations. It returns how many it ran, that one, and which rules it breaks.
func (p *planted) hunt(t *testing.T, binary string, lasts time.Duration) (ran int, seed string, rules []string) {
	kept, err := os.MkdirTemp(p.dir, "kept")
	if err != nil {
		t.Fatal(err)
	}
	hunt := exec.Command(binary, "-test.run=^TestSimulation$", "-test.v", "-test.timeout=2h",
		"-seeds=1", "-for", lasts.String(), "-keep", kept)
	hunt.Dir = filepath.Join(p.root, "test/simulation")
	out, err := hunt.CombinedOutput()
	for _, s := range aSeed.FindAllSubmatch(out, -1) {
		ran, seed = ran+1, string(s[1])
	}
	if err == nil {
		return ran, "", nil
	}
	if panics := bytes.Index(out, []byte("\npanic: ")); panics >= 0 && ran > 0 {
		t.Logf("%s", out[panics:min(panics+2000, len(out))])
		return ran, seed, []string{"the product panics"}
	}
	_, said, ok := bytes.Cut(out, []byte("violations with -seed "))
	if !ok {
		t.Fatalf("ended without a verdict: %v\n%s", err, out[max(0, len(out)-4000):])
	}
	t.Logf("%s", said[:min(2000, len(said))])
	all, err := filepath.Glob(filepath.Join(kept, "*", "*", "violations.json")) // see keep
	if err != nil || len(all) == 0 {
		t.Fatalf("no violations are kept, %v", err)
	}
	var wrong []history.Violation
	text, err := os.ReadFile(all[0])
	if err == nil {
		err = json.Unmarshal(text, &wrong)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range wrong {
		if !slices.Contains(rules, v.Rule) {
			rules = append(rules, v.Rule)
		}
	}
	first, _, _ := bytes.Cut(said, []byte(","))
	return ran, string(first), rules
}

var (
	aSeed  = regexp.MustCompile(`=== RUN   TestSimulation/seed=(\d+)`)
	failed = regexp.MustCompile(`--- FAIL: (\w+)`)
	tookIt = regexp.MustCompile(`FAIL\t\S+\t([0-9.]+s)`)
)

// test runs the test that must find the bug.
func (p *planted) test(t *testing.T, c *caught) {
	dir, name, _ := strings.Cut(p.by, " ")
	out, err := p.tests(t, dir, "-run", "^("+name+")$")
	if c.By = "`" + name + "`"; err == nil {
		return
	}
	c.Said = "it fails"
	switch panics := bytes.Index(out, []byte("panic: ")); {
	case panics >= 0:
		c.Said, _, _ = strings.Cut(string(out[panics:]), "\n")
	case !failed.Match(out):
		t.Fatalf("%v\n%s", err, out)
	}
	if took := tookIt.FindSubmatch(out); took != nil {
		c.After, _ = time.ParseDuration(string(took[1]))
	}
	t.Logf("%s", out[:min(2000, len(out))])
}

// tests runs tests of a package.
func (p *planted) tests(t *testing.T, dir string, args ...string) (out []byte, err error) {
	args = slices.Concat([]string{"-count=1", "-vet=off", "-timeout=5m"}, args)
	files, err := filepath.Glob(filepath.Join(p.root, dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	random := func(file string) bool {
		text, err := os.ReadFile(file)
		return err == nil && bytes.Contains(text, []byte(`"pgregory.net/rapid"`))
	}
	if slices.ContainsFunc(files, random) {
		args = append(args, "-rapid.nofailfile") // or it would be tried on the product without the bug
	}
	return p.command("test", dir, args...).CombinedOutput()
}

// unit runs the tests of the packages that have the bug, and says which of them find it.
func (p *planted) unit(t *testing.T) string {
	var all []string
	for _, dir := range dirsOf(p.plant) {
		out, err := p.tests(t, dir, "-short")
		if err == nil {
			continue
		}
		t.Logf("%s", out[:min(4000, len(out))])
		if bytes.Contains(out, []byte("panic: ")) {
			all = append(all, "a panic")
		}
		for _, f := range failed.FindAllSubmatch(out, -1) {
			all = append(all, "`"+string(f[1])+"`")
		}
		if len(all) == 0 {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	if len(all) == 0 {
		return "pass"
	}
	return strings.Join(all[:min(3, len(all))], ", ")
}

// list is the file that tells the compiler which files are planted.
func (p *planted) list() string { return filepath.Join(p.dir, "overlay.json") }

// writeOverlay writes the planted files, and the list of them.
func (p *planted) writeOverlay(t *testing.T) {
	files, err := plant(p.root, os.ReadFile, p.plant)
	if err != nil {
		t.Fatal(err)
	}
	replace := make(map[string]string)
	for path, text := range files {
		replace[path] = filepath.Join(p.dir, fmt.Sprint(len(replace), ".go"))
		if err := os.WriteFile(replace[path], text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(p.list(), text, 0o600); err != nil {
		t.Fatal(err)
	}
}
