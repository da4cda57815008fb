package console

import (
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// palettes returns the colours of the style sheet, by theme and name.
func palettes(t *testing.T) map[string]map[string]string {
	t.Helper()
	sheet := string(mustRead("static/console.css"))
	light, dark, ok := strings.Cut(sheet, "@media (prefers-color-scheme: dark)")
	if !ok {
		t.Fatal("there is no dark theme")
	}
	dark, _, _ = strings.Cut(dark, "\n}\n")
	colour := regexp.MustCompile(`--([a-z-]+): #([0-9a-f]{6});`)
	all := map[string]map[string]string{"light": {}, "dark": {}}
	for theme, text := range map[string]string{"light": light, "dark": dark} {
		for _, m := range colour.FindAllStringSubmatch(text, -1) {
			all[theme][m[1]] = m[2]
		}
	}
	return all
}

// luminance and contrast are defined in WCAG 2.2.
func luminance(t *testing.T, hex string) float64 {
	t.Helper()
	n, err := strconv.ParseUint(hex, 16, 32)
	if err != nil || len(hex) != 6 {
		t.Fatalf("%q is no colour", hex)
	}
	part := func(shift int) float64 {
		c := float64(n>>shift&0xff) / 255
		if c <= 0.04045 {
			return c / 12.92
		}
		return math.Pow((c+0.055)/1.055, 2.4)
	}
	return 0.2126*part(16) + 0.7152*part(8) + 0.0722*part(0)
}

func contrast(t *testing.T, a, b string) float64 {
	t.Helper()
	x, y := luminance(t, a), luminance(t, b)
	return (max(x, y) + 0.05) / (min(x, y) + 0.05)
}

// In both themes text has a contrast of 4.5 to 1 on every background that it is used on.
// Other elements that must be visible have 3 to 1 (WCAG 2.2, 1.4.3 and 1.4.11).
func TestPaletteIsReadable(t *testing.T) {
	if c := contrast(t, "000000", "ffffff"); math.Abs(c-21) > 0.01 {
		t.Fatalf("black on white is %.2f, want 21", c)
	}
	for theme, p := range palettes(t) {
		need := func(least float64, fore string, behind ...string) {
			for _, b := range behind {
				if c := contrast(t, p[fore], p[b]); c < least {
					t.Errorf("%s: %s on %s has %.2f to 1, needs %.1f", theme, fore, b, c, least)
				}
			}
		}
		need(4.5, "text", "page", "panel", "code", "good-panel", "bad-panel")
		need(4.5, "quiet", "page", "panel", "code", "good-panel", "bad-panel")
		need(4.5, "link", "page", "panel", "code", "good-panel", "bad-panel")
		need(4.5, "warn", "code")
		need(4.5, "bad", "panel", "code")
		need(4.5, "on-button", "button")
		need(3, "edge", "page", "panel", "bad-panel")
		for _, mark := range []string{"good", "warn", "bad", "line-a", "line-b", "quiet", "link"} {
			need(3, mark, "panel")
		}
	}
}

// Every colour comes from the palette, so that both themes have it, and every colour of the
// palette is used.
func TestColoursAreOfThePalette(t *testing.T) {
	all := palettes(t)
	sheet := string(mustRead("static/console.css"))
	rest := regexp.MustCompile(`--[a-z-]+: #[0-9a-f]{6};`).ReplaceAllString(sheet, "")
	if found := regexp.MustCompile(`#[0-9a-f]{3,8}\b`).FindAllString(rest, -1); len(found) > 0 {
		t.Errorf("colours outside the palette: %q", found)
	}
	for name := range all["light"] {
		if all["dark"][name] == "" {
			t.Errorf("the dark theme has no --%s", name)
		}
		if !strings.Contains(rest, "var(--"+name+")") {
			t.Errorf("nothing uses --%s", name)
		}
	}
	for _, m := range regexp.MustCompile(`var\(--([a-z-]+)\)`).FindAllStringSubmatch(rest, -1) {
		if all["light"][m[1]] == "" {
			t.Errorf("--%s is no colour", m[1])
		}
	}
}
