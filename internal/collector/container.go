package collector

import (
	"bytes"
	"io/fs"
	"math"
	"path"
	"strconv"
	"strings"
)

// containerLimit returns the least memory limit, in bytes, of the control groups that this process
// is in, or the greatest number if there is none. root is the root of the file system.
func containerLimit(root fs.FS) uint64 {
	least := uint64(math.MaxUint64)
	groups, _ := fs.ReadFile(root, "proc/self/cgroup") // not on other systems than Linux
	for line := range strings.Lines(string(groups)) {
		_, line, _ = strings.Cut(strings.TrimSpace(line), ":") // the hierarchy's number
		controllers, group, _ := strings.Cut(line, ":")
		dir, file := "sys/fs/cgroup", "memory.max" // of version 2
		switch controllers {
		case "":
		case "memory":
			dir, file = "sys/fs/cgroup/memory", "memory.limit_in_bytes" // of version 1
		default:
			continue
		}
		// A group's parents limit it, too. In a container the group itself may be what is mounted.
		for ; ; group = path.Dir(group) {
			text, err := fs.ReadFile(root, path.Join(dir, group, file))
			if limit, bad := strconv.ParseUint(string(bytes.TrimSpace(text)), 10, 64); err == nil && bad == nil { // not "max"
				least = min(least, limit)
			}
			if group == "/" || group == "." {
				break
			}
		}
	}
	return least
}
