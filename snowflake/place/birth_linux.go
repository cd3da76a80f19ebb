package place

import (
	"errors"
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// birth returns when the file was created; "": not known, because the file system keeps
// no such time, the kernel is older than 4.11, or a container forbids the call.
func birth(path string, _ *syscall.Stat_t) (string, error) {
	var stat unix.Statx_t
	err := unix.Statx(unix.AT_FDCWD, path, 0, unix.STATX_BTIME, &stat)
	if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	if stat.Mask&unix.STATX_BTIME == 0 {
		return "", nil
	}
	return fmt.Sprintf("%d.%09d", stat.Btime.Sec, stat.Btime.Nsec), nil
}
