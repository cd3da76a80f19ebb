package disk

import (
	"bufio"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
)

// Replace writes a new file with write, and renames it to path. A power failure at any moment
// leaves the old file or the new one, and the new one as soon as Replace has returned nil. After an
// error the old file may still be there, or a power failure may undo the new one.
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
	// The rename is on disk only after this.
	return SyncFolder(filepath.Dir(path))
}

// SyncFolder makes the names in the folder at path durable. On Windows and Plan 9 it does
// nothing, because they cannot sync folders.
func SyncFolder(path string) error {
	if runtime.GOOS == "windows" || runtime.GOOS == "plan9" {
		return nil
	}
	folder, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(folder.Sync(), folder.Close())
}

// MakeFolder makes the folder at path, and those above it, if they are missing. A power
// failure does not undo that.
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
