//go:build unix

package disk

import (
	"errors"
	"os"
)

// SyncFolder makes the names in the folder at path durable.
func SyncFolder(path string) error {
	folder, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(folder.Sync(), folder.Close())
}
