package installation

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/gofrs/flock"

	"github.com/leafbus/leafbus/bus/embedded"
	"github.com/leafbus/leafbus/bus/kvstore"
)

// FolderLook is what [ExamineFolder] found in a data folder.
type FolderLook struct {
	Path         string // absolute
	User         string // " (process 42)", if a generator uses the folder and that is known
	Used         bool   // a generator uses it
	Installation string // that it belongs to; empty: none yet
}

// ExamineFolder looks whether a generator could start on a data folder. It changes nothing: if no generator uses the
// folder, ExamineFolder writes a file of 1 MiB there and removes it. The error matches [fs.ErrNotExist] if there is no
// folder.
func ExamineFolder(path string) (look FolderLook, err error) {
	if look.Path, err = filepath.Abs(path); err != nil {
		return look, fmt.Errorf("--data-dir: %w", err)
	}
	if info, err := os.Stat(look.Path); err != nil {
		return look, fmt.Errorf("the data folder %s cannot be read: %w", look.Path, err)
	} else if !info.IsDir() {
		return look, fmt.Errorf("the data folder %s is a file", look.Path)
	}
	f := Folder{Path: look.Path}
	if look.Installation, err = f.read(fileInstallation); err != nil {
		return look, err
	}
	if _, err := os.Stat(f.File("lock")); errors.Is(err, fs.ErrNotExist) {
		return look, embedded.CheckRoom(look.Path)
	}
	lock := flock.New(f.File("lock"))
	locked, err := lock.TryLock()
	if err != nil {
		return look, fmt.Errorf("the data folder %s is not writable: %w", look.Path, err)
	}
	defer lock.Close()
	if look.Used = !locked; look.Used { // a file of ours could be in its way
		look.User = f.owner()
		return look, nil
	}
	return look, embedded.CheckRoom(look.Path)
}

// ExamineDatabase returns why a generator of this installation must not use a database, or cannot now.
func ExamineDatabase(ctx context.Context, p Place, have kvstore.Installation) error {
	return lookAt(ctx, database{p}, &have, false).verdict(have)
}

// ExamineZooKeeper is ExamineDatabase for a ZooKeeper. Where an installation has several ones, each for some workers,
// it does not compare which of them this is.
func ExamineZooKeeper(ctx context.Context, p Place, have kvstore.Installation) error {
	first, last := int64(0), int64(-1) // no worker
	if len(have.ZooKeepers) == 1 {
		first, last = have.ZooKeepers[0].First, have.ZooKeepers[0].Last
	}
	return lookAt(ctx, zooKeeper{p, first, last}, &have, false).verdict(have)
}
