//go:build linux || darwin || freebsd

package embedded

import (
	"fmt"
	"syscall"
)

// lowRoom reports that the disk of dir is full; empty: it is not, or it is not known.
func lowRoom(dir string) string {
	var disk syscall.Statfs_t
	if syscall.Statfs(dir, &disk) != nil || disk.Blocks == 0 || uint64(disk.Bavail)*uint64(disk.Bsize) >= minRoom {
		return ""
	}
	return fmt.Sprintf("there is no room in the folder %s: free at least %d MiB on its disk", dir, minRoom>>20)
}
