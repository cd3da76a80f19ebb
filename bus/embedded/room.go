package embedded

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// minRoom is the free room that a start and the first minutes of a store need, in bytes. With
// less, a write would soon fail again.
const minRoom = 1 << 20

// LittleRoom is how much free room on its disk makes a data folder a finding, in bytes. By default,
// the event stream alone may become as large.
const LittleRoom = 256 << 20

// LowRoom returns an error if the disk has less than [LittleRoom] free, as far as the last check
// knows.
func (s *Server) LowRoom() error {
	if free := s.free.Load(); free < LittleRoom {
		return fmt.Errorf("the disk of the folder %s has only %d MiB free", s.dir, free>>20)
	}
	return nil
}

func noRoom(dir string) error {
	return fmt.Errorf("there is no room in the folder %s: free at least %d MiB on its disk", dir, minRoom>>20)
}

// CheckRoom makes dir if it is missing, and writes, syncs and removes 1 MiB in it. If that fails,
// because the disk is full for example, the error names dir. dir must belong to the caller alone.
func CheckRoom(dir string) error {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return fmt.Errorf("the folder %s cannot be made: %w", dir, err)
	}
	file := filepath.Join(dir, ".room") // a crash may have left one
	err := os.WriteFile(file, make([]byte, minRoom), 0o600)
	if f, openErr := os.OpenFile(file, os.O_WRONLY, 0); openErr == nil {
		err = errors.Join(err, f.Sync(), f.Close(), os.Remove(file))
	}
	switch {
	case errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT):
		return fmt.Errorf("%w: %w", noRoom(dir), err)
	case err != nil:
		return fmt.Errorf("the folder %s is not writable: %w", dir, err)
	}
	return nil
}

// prepareStore makes sure that the server can write to its folder. nats-server checks too, but its
// message does not name the folder, and it starts on a full disk. The store of a single server is
// moved away before the server becomes one of a cluster, which does not take over its streams:
// nats-server would delete them. The store of a cluster's server is refused where there is no
// cluster: nats-server would leave out its streams, as if they were lost, while the other servers
// go on with them.
func (s *Server) prepareStore(opts *server.Options) error {
	if s.dir == "" {
		return errors.New("JetStream needs a store folder: nats-server would use a shared temporary one")
	}
	if err := CheckRoom(s.dir); err != nil {
		return err
	}
	store := filepath.Join(s.dir, server.JetStreamStoreDir)
	meta, err := fs.Glob(os.DirFS(store), "*/_js_/_meta_") // its path may have the characters of a pattern
	streams, globErr := fs.Glob(os.DirFS(store), "*/streams/*")
	wasClustered, clustered := len(meta) > 0, opts.Cluster.Port != 0
	switch {
	case err != nil || globErr != nil:
		return errors.Join(err, globErr)
	case clustered && !wasClustered && len(streams) > 0:
		aside := fmt.Sprintf("%s.single-%s", store, time.Now().UTC().Format("20060102T150405Z"))
		s.log.out.Warn("the store is that of a single server, and a cluster begins with an empty one: the store is moved "+
			"away. Run `leaf restore FILE` with a backup. To make one, move the store back, and start this generator "+
			"without a cluster", "from", store, "to", aside)
		return os.Rename(store, aside)
	case !clustered && wasClustered && len(opts.LeafNode.Remotes) == 0: // a leaf node can be a part of its hub's cluster
		return fmt.Errorf("the folder %s is the store of a cluster's server, and the configuration has no cluster: give "+
			"--nats-config with the cluster block. To leave the cluster for good, run `leaf backup FILE` there, stop all "+
			"its servers, move that folder away, start this generator, and run `leaf restore FILE`", store)
	}
	return nil
}
