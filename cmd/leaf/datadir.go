package main

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/gofrs/flock"

	"github.com/leafbus/leafbus/allocator/disk"
	"github.com/leafbus/leafbus/bus/embedded"
	"github.com/leafbus/leafbus/snowflake"
	"github.com/leafbus/leafbus/snowflake/place"
)

// dataDir is the folder that holds all of a generator's local state:
//
//	lock          held while the generator runs; contains its process ID
//	node          the node's name, made once
//	installation  the ID of the installation that was joined
//	database      the database that said that it is this installation's
//	marks         the allocator's high-water marks
//	recent        the tags used in the last day
//	worker        the worker of snowflakes, and up to which time it was used
//	nats/         the embedded NATS server's JetStream
type dataDir struct {
	path string // absolute
	lock *flock.Flock
	disk *disk.Runner // for the small files
}

// folderWait is how long the disk may take for one of the small files.
const folderWait = 5 * time.Second

// maxNode is the most characters of a node's name.
const maxNode = 64

var nodeTokens = regexp.MustCompile(`^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$`)

// isNode reports whether a name can be a node's: that of a pod (leaf-0) or of a host
// (db1.example.com) can. It is the end of an event's subject, so no token of it is empty.
func isNode(name string) bool { return len(name) <= maxNode && nodeTokens.MatchString(name) }

// errLocked: another generator runs on the folder.
var errLocked = errors.New("in use by another generator")

// openDataDir makes the folder if it is missing and locks it.
func openDataDir(path string) (*dataDir, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("--data-dir: %w", err)
	}
	if err := disk.MakeFolder(path, 0o750); err != nil {
		return nil, fmt.Errorf("the data folder %s cannot be made: %w", path, err)
	}
	d := &dataDir{path: path, lock: flock.New(filepath.Join(path, "lock")), disk: disk.NewRunner(folderWait)}
	locked, err := d.lock.TryLock()
	if err != nil {
		return nil, fmt.Errorf("the data folder %s is not writable: %w", path, err)
	}
	if !locked {
		owner := ""
		if pid, err := os.ReadFile(d.file("lock")); err == nil && len(pid) > 0 {
			owner = " (process " + strings.TrimSpace(string(pid)) + ")"
		}
		return nil, fmt.Errorf("the data folder %s is %w%s: give this one its own with --data-dir", path, errLocked, owner)
	}
	// Before anything is written there: a start on a full disk must not leave half a folder.
	if err := embedded.CheckRoom(path); err != nil {
		d.close()
		return nil, err
	}
	if err := os.WriteFile(d.file("lock"), []byte(strconv.Itoa(os.Getpid())+"\n"), 0o640); err != nil {
		d.close()
		return nil, fmt.Errorf("the data folder %s is not writable: %w", path, err)
	}
	return d, nil
}

func (d *dataDir) close() error { return d.lock.Close() }

func (d *dataDir) file(name string) string { return filepath.Join(d.path, name) }

// isNew reports whether the folder's generator has joined no installation yet.
func (d *dataDir) isNew() bool {
	_, err := os.Stat(d.file("installation"))
	return errors.Is(err, fs.ErrNotExist)
}

// hasStore reports whether the embedded NATS server keeps anything in the folder.
func (d *dataDir) hasStore() bool {
	streams, _ := fs.Glob(os.DirFS(d.path), "nats/jetstream/*/streams/*") // of each account
	return len(streams) > 0
}

// worker opens the file of the worker. here is where the folder is; copied
// says that the file knows another: the folder is a copy, or was restored.
func (d *dataDir) worker() (file *snowflake.File, here string, copied bool, err error) {
	if here, err = place.Of(d.file("lock")); err != nil {
		return nil, "", false, err
	}
	if file, err = snowflake.OpenFile(d.file("worker")); err != nil {
		return nil, "", false, err
	}
	saved, ok := file.Saved()
	return file, here, ok && !saved.At(here), nil
}

// node returns the node's name: the one that was asked for, which isNode must accept.
// Without that it is the folder's, or, if the folder is a copy, a new random name. The
// folder keeps the name.
func (d *dataDir) node(asked string, copied bool) (string, error) {
	kept, err := d.read("node")
	if err != nil {
		return "", err
	}
	if copied {
		kept = ""
	}
	switch {
	case asked == "" && kept == "":
		asked = "n" + strings.ToLower(rand.Text()[:12])
	case asked == "":
		if !isNode(kept) {
			return "", fmt.Errorf("%s does not hold a node's name: give one with --node", d.file("node"))
		}
		return kept, nil
	}
	return asked, d.write("node", asked)
}

// read returns the one line of a small file, or nothing if there is none.
func (d *dataDir) read(name string) (string, error) {
	b, err := os.ReadFile(d.file(name))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return strings.TrimSpace(string(b)), err
}

// remove removes a small file.
func (d *dataDir) remove(name string) error {
	err := d.disk.Run(func() error { return os.Remove(d.file(name)) })
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// write replaces a small file: after a power failure it holds the old line or the new,
// and once write has returned nil the new one.
func (d *dataDir) write(name, line string) error {
	err := d.disk.Run(func() error {
		return disk.Replace(d.file(name), 0o600, func(w io.Writer) error {
			_, err := io.WriteString(w, line+"\n")
			return err
		})
	})
	if err != nil {
		return fmt.Errorf("writing %s: %w", d.file(name), err)
	}
	return nil
}
