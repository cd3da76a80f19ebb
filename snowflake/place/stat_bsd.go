//go:build darwin || freebsd || netbsd

package place

import (
	"fmt"
	"syscall"
)

// stat returns a file's inode, and when it was created; "": the file system keeps no such time.
func stat(path string) (inode uint64, born string, err error) {
	var s syscall.Stat_t
	if err := syscall.Stat(path, &s); err != nil {
		return 0, "", err
	}
	if sec, nsec := s.Birthtimespec.Unix(); sec > 0 {
		born = fmt.Sprintf("%d.%09d", sec, nsec)
	}
	return uint64(s.Ino), born, nil
}
