//go:build darwin || freebsd || netbsd

package place

import (
	"fmt"
	"syscall"
)

// birth returns when the file was created; "": the file system keeps no such time.
func birth(_ string, stat *syscall.Stat_t) (string, error) {
	sec, nsec := stat.Birthtimespec.Unix()
	if sec <= 0 {
		return "", nil
	}
	return fmt.Sprintf("%d.%09d", sec, nsec), nil
}
