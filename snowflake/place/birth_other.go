//go:build unix && !linux && !darwin && !freebsd && !netbsd

package place

import "syscall"

// birth returns "": this system does not tell when a file was created.
func birth(string, *syscall.Stat_t) (string, error) { return "", nil }
