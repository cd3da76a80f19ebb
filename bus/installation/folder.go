package installation

import (
	"bufio"
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

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/allocator/disk"
	"github.com/leafbus/leafbus/bus/embedded"
	"github.com/leafbus/leafbus/snowflake"
	"github.com/leafbus/leafbus/snowflake/place"
)

// Folder is the folder that holds all of a generator's local state:
//
//	lock          held while the generator runs; contains its process ID
//	node          the node's name, made once
//	installation  the ID of the installation that was joined, and the kind of its store of tags
//	marks         the allocator's high-water marks
//	worker        the worker of snowflakes, and up to which time it was used
//	nats/         the embedded NATS server's JetStream
type Folder struct {
	Path   string // absolute
	Node   string // the generator's name
	Worker *snowflake.File
	Place  string // where the folder is: another for each copy of it
	Copied bool   // the folder is a copy, or was restored: Node and the worker are new
	Index  *allocator.Index

	empty bool // nats/ had no stream when the folder was opened
	lock  *flock.Flock
	disk  *disk.Runner // for the small files
}

const fileInstallation = "installation"

// folderWait is how long the disk may take for one of the small files.
const folderWait = 5 * time.Second

// MaxNode is the most characters of a node's name.
const MaxNode = 64

var nodeTokens = regexp.MustCompile(`^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$`)

// IsNode reports whether a name can be a node's: that of a pod (leaf-0) or of a host
// (db1.example.com) can. It is the end of an event's subject, so no token of it is empty.
func IsNode(name string) bool { return len(name) <= MaxNode && nodeTokens.MatchString(name) }

// ErrLocked says that another generator runs on the folder.
var ErrLocked = errors.New("in use by another generator")

// OpenFolder makes the folder if it is missing, locks it and opens what is in it. node is the name
// that was asked for, which [IsNode] must accept; empty: the folder's, or a new random one. Close
// it.
func OpenFolder(path, node string) (*Folder, error) {
	f, err := folderAt(path)
	if err != nil {
		return nil, err
	}
	if err := disk.MakeFolder(f.Path, 0o750); err != nil {
		return nil, fmt.Errorf("the data folder %s cannot be made: %w", f.Path, err)
	}
	if err := f.open(node); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func folderAt(path string) (*Folder, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("--data-dir: %w", err)
	}
	return &Folder{Path: path, lock: flock.New(filepath.Join(path, "lock")), disk: disk.NewRunner(folderWait)}, nil
}

// FolderLook is what [ExamineFolder] found in a data folder.
type FolderLook struct {
	Path         string // absolute
	Installation string // that it belongs to; empty: none yet
	Used         error  // says that a generator uses it, and matches [ErrLocked]; nil: none does
}

// ExamineFolder looks at a data folder, and writes nothing. The error matches [fs.ErrNotExist] if
// there is none.
func ExamineFolder(path string) (look FolderLook, err error) {
	f, err := folderAt(path)
	if err != nil {
		return look, err
	}
	look.Path = f.Path
	if info, err := os.Stat(f.Path); err != nil {
		return look, fmt.Errorf("the data folder %s cannot be read: %w", f.Path, err)
	} else if !info.IsDir() {
		return look, fmt.Errorf("the data folder %s is a file", f.Path)
	}
	if look.Installation, _, err = f.belongs(); err != nil {
		return look, err
	}
	if _, err := os.Stat(f.lock.Path()); err != nil {
		return look, nil // TryLock would make it
	}
	err = f.tryLock()
	if errors.Is(err, ErrLocked) {
		look.Used, err = err, nil
	}
	return look, errors.Join(err, f.lock.Close())
}

func (f *Folder) tryLock() error {
	locked, err := f.lock.TryLock()
	if err != nil {
		return fmt.Errorf("the data folder %s is not writable: %w", f.Path, err)
	}
	if locked {
		return nil
	}
	owner, _ := f.read("lock")
	if owner != "" {
		owner = " (process " + owner + ")"
	}
	return fmt.Errorf("the data folder %s is %w%s: give this one its own with --data-dir", f.Path, ErrLocked, owner)
}

func (f *Folder) open(node string) (err error) {
	if err := f.tryLock(); err != nil {
		return err
	}
	// Before anything is written there: a start on a full disk must not leave half a folder.
	if err := embedded.CheckRoom(f.Path); err != nil {
		return err
	}
	if err := os.WriteFile(f.File("lock"), []byte(strconv.Itoa(os.Getpid())+"\n"), 0o640); err != nil {
		return fmt.Errorf("the data folder %s is not writable: %w", f.Path, err)
	}
	streams, err := fs.Glob(os.DirFS(f.Path), "nats/jetstream/*/streams/*") // of each account
	if err != nil {
		return err
	}
	f.empty = len(streams) == 0
	if f.Place, err = place.Of(f.File("lock")); err != nil {
		return err
	}
	if f.Worker, err = snowflake.OpenFile(f.File("worker")); err != nil {
		return err
	}
	saved, ok := f.Worker.Saved()
	f.Copied = ok && saved.Place != f.Place
	if f.Node, err = f.node(node); err != nil {
		return err
	}
	f.Index, err = allocator.OpenIndex(f.File("marks"))
	return err
}

// Close closes what is open, and unlocks the folder.
func (f *Folder) Close() (err error) {
	if f.Index != nil {
		err = f.Index.Close()
	}
	if f.Worker != nil {
		err = errors.Join(err, f.Worker.Close())
	}
	return errors.Join(err, f.lock.Close())
}

// File returns the path of a file in the folder.
func (f *Folder) File(name string) string { return filepath.Join(f.Path, name) }

// node returns the node's name: the one that was asked for, or else the folder's, or else a new
// random one. The folder keeps the name; a copy does not.
func (f *Folder) node(asked string) (string, error) {
	kept, err := f.read("node")
	if err != nil {
		return "", err
	}
	if f.Copied {
		kept = ""
	}
	switch {
	case asked == "" && kept == "":
		asked = "n" + strings.ToLower(rand.Text()[:12])
	case asked == "" && IsNode(kept):
		return kept, nil
	case asked == "":
		return "", fmt.Errorf("%s does not hold a node's name: give one with --node", f.File("node"))
	}
	return asked, f.write("node", asked)
}

// read returns the one line of a small file, or nothing if there is none.
func (f *Folder) read(name string) (string, error) {
	b, err := os.ReadFile(f.File(name))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return strings.TrimSpace(string(b)), err
}

// belongs returns the installation that the folder belongs to, and the kind of its store of tags;
// empty: none yet.
func (f *Folder) belongs() (installation, store string, err error) {
	line, err := f.read(fileInstallation)
	installation, store, _ = strings.Cut(line, " ")
	return installation, store, err
}

// write replaces a small file: after a power failure it holds the old line or the new,
// and once write has returned nil the new one.
func (f *Folder) write(name, line string) error {
	err := f.disk.Run(func() error {
		return disk.Replace(f.File(name), 0o600, func(w io.Writer) error {
			_, err := io.WriteString(w, line+"\n")
			return err
		})
	})
	if err != nil {
		return fmt.Errorf("writing %s: %w", f.File(name), err)
	}
	return nil
}

// temporary returns an error if a folder is in an emptyDir of Kubernetes, or in a container's own
// layer there: it ends with its pod. mounts is as /proc/self/mountinfo.
func temporary(folder string, mounts io.Reader) error {
	at, source, kind := "", "", ""
	lines := bufio.NewScanner(mounts)
	for lines.Scan() {
		// 36 35 98:0 /source /mount/point options - ext3 /dev/root options
		mount, rest, ok := strings.Cut(lines.Text(), " - ")
		fields := strings.Fields(mount)
		if !ok || len(fields) < 5 || len(fields[4]) < len(at) {
			continue
		}
		inside, err := filepath.Rel(fields[4], folder)
		if err == nil && inside != ".." && !strings.HasPrefix(inside, "../") {
			at, source = fields[4], fields[3]
			kind, _, _ = strings.Cut(rest, " ")
		}
	}
	switch {
	case strings.Contains(source, "kubernetes.io~empty-dir"):
		return fmt.Errorf("the data folder %s is in an emptyDir, which ends with its pod", folder)
	case kind == "overlay" && os.Getenv("KUBERNETES_SERVICE_HOST") != "":
		return fmt.Errorf("the data folder %s is in the container's own layer, which ends with its pod", folder)
	}
	return nil
}

// lasts returns an error if the folder ends with its pod.
func (f *Folder) lasts() error {
	mounts, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil // another system
	}
	defer mounts.Close()
	return temporary(f.Path, mounts)
}
