//go:build unix

package snowflake

import (
	"fmt"
	"os"
	"syscall"
)

// Place says which data folder the file at path lock lies in, by the inode of
// that file: it is another in a copy, so that the copy does not pass for the
// folder itself, and stays when the folder is renamed. The device is left out, as
// its number may change when the machine starts. It is an error if there is no
// such file. Safe for concurrent use.
func Place(lock string) (string, error) {
	info, err := os.Stat(lock)
	if err != nil {
		return "", fmt.Errorf("finding the place of the data folder: %w", err)
	}
	return fmt.Sprintf("inode:%d", info.Sys().(*syscall.Stat_t).Ino), nil
}
