package memory

import (
	"io/fs"
	"path"
	"strconv"
	"strings"
)

const (
	// part is the default share of memory: a quarter of the cgroup's limit or of the machine's memory.
	part = 4
	// most is the largest default size. More brings next to nothing: see docs/BENCHMARKS.md.
	most = 4 << 30
	// unknown is the default size if the machine does not report its memory.
	unknown = 512 * mib
)

// Choose returns how much memory a process uses if no size is set, in bytes, and a phrase that explains the choice to
// people. root is the root of the file system.
func Choose(root fs.FS) (size int64, why string) {
	available, source := Has(root)
	switch size = available / part; {
	case available == 0:
		return unknown, "the machine does not tell how much it has"
	case size < Minimum:
		return Minimum, "the least that a process needs; " + source + " is " + inMiB(available)
	case size > most:
		return most, "the most that is used unless --memory says more; " + source + " is " + inMiB(available)
	}
	return size / mib * mib, "a quarter of " + source + ", " + inMiB(available)
}

// Has returns how much memory the process may use, in bytes, and the source of that number; 0 if there is none.
func Has(root fs.FS) (bytes int64, source string) {
	bytes, source = limitOf(root), "the cgroup's limit"
	if machine := machineOf(root); bytes == 0 || machine > 0 && machine < bytes {
		return machine, "the machine's memory"
	}
	return bytes, source
}

func inMiB(n int64) string { return strconv.FormatInt(n/mib, 10) + "MiB" }

// machineOf returns the memory of the machine; 0 if it does not report it.
func machineOf(root fs.FS) int64 {
	text, err := fs.ReadFile(root, "proc/meminfo")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		if total, ok := strings.CutPrefix(line, "MemTotal:"); ok {
			n, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(total), " kB"), 10, 64)
			if err != nil {
				return 0
			}
			return n << 10
		}
	}
	return 0
}

const (
	membership = "proc/self/cgroup"
	hierarchy  = "sys/fs/cgroup"
)

// limitOf returns the least memory limit of the process's cgroup (v2) and the cgroups around it; 0 if there is none.
func limitOf(root fs.FS) (limit int64) {
	own, err := fs.ReadFile(root, membership)
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(own)) {
		dir, unified := strings.CutPrefix(strings.TrimSpace(line), "0::")
		if !unified {
			continue
		}
		for dir = path.Clean("/" + dir); ; dir = path.Dir(dir) {
			if n := limitIn(root, path.Join(hierarchy, dir)); n > 0 && (limit == 0 || n < limit) {
				limit = n
			}
			if dir == "/" {
				return limit
			}
		}
	}
	return 0
}

func limitIn(root fs.FS, dir string) int64 {
	text, err := fs.ReadFile(root, path.Join(dir, "memory.max"))
	if err != nil {
		return 0
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		return 0 // max: there is none
	}
	return n
}
