package targets

import (
	"maps"
	"slices"
	"strings"

	"github.com/waterclock/waterclock/internal/beats"
)

const (
	// maxWanted bounds the topics of one look-up.
	maxWanted = 1000
	// maxNewcomers bounds the newcomers that wait for a look-up.
	maxNewcomers = 10_000
)

// wanted is what Run is to look up next. Metadata.mu guards it.
type wanted struct {
	all       bool                // everything in use
	topics    map[string]struct{} // that are cached
	newcomers map[string]struct{} // that are not
	wake      beats.Signal        // something was added
}

func newWanted() wanted {
	return wanted{topics: make(map[string]struct{}), newcomers: make(map[string]struct{}), wake: beats.NewSignal()}
}

// add adds a topic. If there are too many newcomers it adds nothing: the caller comes again if it needs the topic.
func (w *wanted) add(topic string, cached bool) {
	switch {
	case cached:
		w.topics[strings.Clone(topic)] = struct{}{}
	case len(w.newcomers) < maxNewcomers:
		w.newcomers[strings.Clone(topic)] = struct{}{}
	default:
		return
	}
	w.wake.Send()
}

// addAll adds everything that is in use.
func (w *wanted) addAll() {
	w.all = true
	w.wake.Send()
}

// take returns what to look up now. It returns only as many newcomers as one look-up has, because the leaders of
// topics that are cached are more urgent. all: everything in use too.
func (w *wanted) take() (names []string, all bool) {
	names = slices.Collect(maps.Keys(w.topics))
	clear(w.topics)
	n := 0
	for name := range w.newcomers {
		if n++; n > maxWanted {
			w.wake.Send()
			break
		}
		names = append(names, name)
		delete(w.newcomers, name)
	}
	all, w.all = w.all, false
	return names, all
}
