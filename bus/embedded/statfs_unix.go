//go:build linux || darwin || freebsd

package embedded

import "syscall"

// FreeRoom returns how many bytes are free on the disk of dir for other users than root. ok is
// false if that is not known.
func FreeRoom(dir string) (bytes uint64, ok bool) {
	var disk syscall.Statfs_t
	if syscall.Statfs(dir, &disk) != nil || disk.Blocks == 0 {
		return 0, false
	}
	return uint64(disk.Bavail) * uint64(disk.Bsize), true
}
