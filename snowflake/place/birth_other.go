//go:build unix && !linux && !darwin && !freebsd && !netbsd

package place

import "syscall"

// birth returns "", because this system does not report when a file was created.
func birth(string, *syscall.Stat_t) (string, error) { return "", nil }
