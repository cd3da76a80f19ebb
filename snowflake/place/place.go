// Package place distinguishes a data folder from its copies. It is a package of its own
// because the birth time of a file needs more than the standard library.
package place

import "fmt"

// Of says which data folder the file at path lock lies in, by the file's inode and birth time. On a
// fresh file system a copy may get the same inode, but it has another birth time. Both stay when
// the folder is renamed, and when its volume is attached to another machine. The device is left
// out, because its number may change when the machine starts. If the file system keeps no birth
// time, the place is the inode alone. Where the system has neither, all folders have the same
// place: only the incarnation in the registry shows that a folder was copied.
//
// It returns an error if there is no such file. Safe for concurrent use.
func Of(lock string) (string, error) {
	inode, born, err := stat(lock)
	if err != nil {
		return "", fmt.Errorf("finding the place of the data folder: %w", err)
	}
	place := fmt.Sprintf("inode:%d", inode)
	if born != "" {
		place += " born:" + born
	}
	return place, nil
}
