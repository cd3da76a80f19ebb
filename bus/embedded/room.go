package embedded

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// minRoom is the free room that a start and the first minutes of a store need, in bytes. With
// less, a write would soon fail again.
const minRoom = 1 << 20

// prepareStore makes sure that the server can write to dir. nats-server checks too, but its
// message does not name the folder, and it starts on a full disk.
func prepareStore(dir string) error {
	if dir == "" {
		return errors.New("JetStream needs a store folder: nats-server would use a shared temporary one")
	}
	return CheckRoom(dir)
}

// setAside moves the store of a single server away before the server becomes one of a cluster. The cluster does not
// take over its streams: nats-server would delete them.
func (s *Server) setAside() error {
	store := filepath.Join(s.dir, server.JetStreamStoreDir)
	streams, err := filepath.Glob(filepath.Join(store, "*", "streams", "*"))
	if err != nil || len(streams) == 0 || clustered(store) {
		return err
	}
	aside := fmt.Sprintf("%s.single-%s", store, time.Now().UTC().Format("20060102T150405Z"))
	s.log.out.Warn("the store is that of a single server, and a cluster begins with an empty one: the store is moved away. "+
		"Run `leaf restore FILE` with a backup. To make one, move the store back, and start this generator without a cluster",
		"from", store, "to", aside)
	return os.Rename(store, aside)
}

// checkAlone refuses the store of a cluster's server where there is no cluster. nats-server would leave out its
// streams, as if they were lost, while the other servers go on with them.
func (s *Server) checkAlone() error {
	store := filepath.Join(s.dir, server.JetStreamStoreDir)
	if !clustered(store) {
		return nil
	}
	return fmt.Errorf("the folder %s is the store of a cluster's server, and the configuration has no cluster: give --nats-config "+
		"with the cluster block. To leave the cluster for good, run `leaf backup FILE` there, stop all its servers, "+
		"move that folder away, start this generator, and run `leaf restore FILE`", store)
}

// clustered reports whether a store is that of a cluster's server.
func clustered(store string) bool {
	meta, _ := filepath.Glob(filepath.Join(store, "*", "_js_", "_meta_"))
	return len(meta) > 0
}

// lowRoom reports that the disk of dir is full; empty: it is not, or it is not known.
func lowRoom(dir string) string {
	if free, ok := FreeRoom(dir); !ok || free >= minRoom {
		return ""
	}
	return fmt.Sprintf("there is no room in the folder %s: free at least %d MiB on its disk", dir, minRoom>>20)
}

// CheckRoom makes dir if it is missing, and writes, syncs and removes 1 MiB in it. If that fails,
// because the disk is full for example, the error names dir. dir must belong to the caller alone.
func CheckRoom(dir string) error {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return fmt.Errorf("the folder %s cannot be made: %w", dir, err)
	}
	err := tryRoom(filepath.Join(dir, ".room"))
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return fmt.Errorf("there is no room in the folder %s: free at least %d MiB on its disk: %w", dir, minRoom>>20, err)
	}
	if err != nil {
		return fmt.Errorf("the folder %s is not writable: %w", dir, err)
	}
	return nil
}

// tryRoom writes a file of the size minRoom and removes it. It replaces one that a crash left.
func tryRoom(name string) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(make([]byte, minRoom))
	return errors.Join(err, f.Sync(), f.Close(), os.Remove(name))
}
