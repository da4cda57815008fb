package memory

import (
	"io/fs"
	"path"
	"strconv"
	"strings"
)

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
