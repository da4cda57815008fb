package api_test

import (
	"os"
	"regexp"
	"slices"
	"testing"

	"github.com/waterclock/waterclock/internal/api"
)

// Filters take every type of events.
func TestEventTypesAreComplete(t *testing.T) {
	source, err := os.ReadFile("../../event.go")
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, m := range regexp.MustCompile(`\tEvent\w+ +EventType = "([^"]+)"`).FindAllStringSubmatch(string(source), -1) {
		want = append(want, m[1])
	}
	got := api.EventTypes()
	slices.Sort(got)
	slices.Sort(want)
	if len(want) < 15 || !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
