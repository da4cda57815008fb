package ops

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/prometheus/client_golang/prometheus"
)

// Build says from which sources a program was built.
type Build struct {
	Version  string // of the module
	Revision string // of the sources; empty where the builder did not tell
	Modified bool   // the sources were not those of Revision
}

// ReadBuild returns the build of this program.
func ReadBuild() Build {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = &debug.BuildInfo{}
	}
	return buildOf(info)
}

func buildOf(info *debug.BuildInfo) Build {
	b := Build{Version: info.Main.Version}
	if b.Version == "" {
		b.Version = "unknown"
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Revision = s.Value[:min(len(s.Value), 12)]
		case "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}
	return b
}

// String is "waterclock v1.2.3 (revision 0123456789ab, modified), go1.26.0, linux/amd64".
func (b Build) String() string {
	text := "waterclock " + b.Version
	if b.Revision != "" {
		text += " (revision " + b.Revision
		if b.Modified {
			text += ", modified"
		}
		text += ")"
	}
	return fmt.Sprintf("%s, %s, %s/%s", text, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

// Collector shows the build as the labels of a metric that is always 1, so that problems can be compared with rollouts.
func (b Build) Collector() prometheus.Collector {
	g := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "waterclock_build_info", Help: "Always 1; the labels say what the program was built from.",
		ConstLabels: prometheus.Labels{"version": b.Version, "revision": b.Revision, "goversion": runtime.Version()},
	})
	g.Set(1)
	return g
}
