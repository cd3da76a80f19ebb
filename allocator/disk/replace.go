package disk

import (
	"bufio"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// Replace puts a file with what write writes in the place of the one at path. A power
// failure at any moment leaves the old one or the new one, and the new one as soon as
// Replace has returned nil. After an error the old one is still there, or the new one
// may not outlast a power failure.
func Replace(path string, mode fs.FileMode, write func(io.Writer) error) error {
	temp, err := os.OpenFile(path+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, mode)
	if err != nil {
		return err
	}
	w := bufio.NewWriter(temp)
	err = write(w)
	err = errors.Join(err, w.Flush(), temp.Sync(), temp.Close())
	if err == nil {
		err = os.Rename(temp.Name(), path)
	}
	if err != nil {
		os.Remove(temp.Name())
		return err
	}
	// The new name is in the folder, which is on disk only after this.
	return SyncFolder(filepath.Dir(path))
}

// MakeFolder makes the folder at path, and those above it, where they are missing. What
// it makes outlasts a power failure.
func MakeFolder(path string, mode fs.FileMode) error {
	parent := filepath.Dir(path)
	err := os.Mkdir(path, mode)
	if errors.Is(err, fs.ErrNotExist) && parent != path {
		if err = MakeFolder(parent, mode); err == nil {
			err = os.Mkdir(path, mode)
		}
	}
	switch {
	case err == nil:
		return SyncFolder(parent)
	case errors.Is(err, fs.ErrExist):
		return os.MkdirAll(path, mode) // an error if it is no folder
	}
	return err
}
