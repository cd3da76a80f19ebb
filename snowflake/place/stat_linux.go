package place

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// stat returns a file's inode, and when it was created; "": not known, because the file system
// keeps no such time, the kernel is older than 4.11, or a container forbids the call.
func stat(path string) (inode uint64, born string, err error) {
	var known unix.Stat_t
	if err := unix.Stat(path, &known); err != nil {
		return 0, "", err
	}
	var more unix.Statx_t
	err = unix.Statx(unix.AT_FDCWD, path, 0, unix.STATX_BTIME, &more)
	switch {
	case errors.Is(err, unix.ENOSYS), errors.Is(err, unix.EPERM):
		err = nil
	case err == nil && more.Mask&unix.STATX_BTIME != 0:
		born = fmt.Sprintf("%d.%09d", more.Btime.Sec, more.Btime.Nsec)
	}
	return known.Ino, born, err
}
