// Package place distinguishes a data folder from its copies. It is a package of its own
// because the birth time of a file needs more than the standard library.
package place

import "fmt"

// name is the place of a folder with a lock file of this inode. born is the
// file's birth time; empty: the file system keeps none.
func name(inode uint64, born string) string {
	if born == "" {
		return fmt.Sprintf("inode:%d", inode)
	}
	return fmt.Sprintf("inode:%d born:%s", inode, born)
}
