package faults

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	server "github.com/leafbus/leafbus/bus/embedded"
	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/tests/kit"
)

// natsServer is in the test's process, so that rows can stop it, change what it stores, and start it again.
type natsServer struct {
	*server.Server
	t   *testing.T
	cfg server.Config
}

// newNATS takes a configuration of nats-server.
func newNATS(t *testing.T, config string) *natsServer {
	t.Helper()
	file := filepath.Join(t.TempDir(), "nats.conf")
	kit.Must(t, os.WriteFile(file, []byte(config), 0o600))
	s := &natsServer{t: t, cfg: server.Config{
		Listen: testkit.FreeAddress(t), StoreDir: t.TempDir(), Log: testkit.Quiet, ConfigFile: file,
	}}
	s.start()
	t.Cleanup(func() { s.Close() })
	return s
}

func (s *natsServer) start() {
	s.t.Helper()
	// Another process may look at this moment whether the port is free.
	testkit.Eventually(s.t, "a NATS server at "+s.cfg.Listen, func() bool {
		started, err := server.Start(s.cfg)
		if err != nil && !errors.Is(err, server.ErrAddressInUse) {
			s.t.Fatal(err)
		}
		s.Server = started
		return err == nil
	})
}

// configure restarts the server with another configuration.
func (s *natsServer) configure(config string) {
	s.t.Helper()
	s.Close()
	kit.Must(s.t, os.WriteFile(s.cfg.ConfigFile, []byte(config), 0o600))
	s.start()
}

// save copies a bucket, and returns what puts the copy back. The server is down for either.
func (s *natsServer) save(bucket string) (putBack func()) {
	s.t.Helper()
	folder := filepath.Join(s.cfg.StoreDir, "jetstream", "$G", "streams", "KV_"+bucket)
	kept := s.t.TempDir()
	copyDown := func(from, to string) {
		s.Close()
		copyFolder(s.t, from, to)
		s.start()
	}
	copyDown(folder, kept)
	return func() { copyDown(kept, folder) }
}

func copyFolder(t *testing.T, from, to string) {
	t.Helper()
	kit.Must(t, os.RemoveAll(to))
	kit.Must(t, os.CopyFS(to, os.DirFS(from)))
}

// bucket opens a bucket.
func (in *installation) bucket(name string) jetstream.KeyValue {
	in.Helper()
	kv, err := in.js.KeyValue(in.Context(), name)
	kit.Must(in.T, err)
	return kv
}

// change changes the configuration of a bucket.
func (in *installation) change(bucket string, set func(*jetstream.StreamConfig)) {
	in.Helper()
	stream, err := in.js.Stream(in.Context(), "KV_"+bucket)
	kit.Must(in.T, err)
	cfg := stream.CachedInfo().Config
	set(&cfg)
	_, err = in.js.UpdateStream(in.Context(), cfg)
	kit.Must(in.T, err)
}

// refuseWrites makes JetStream refuse every write to a bucket, as a full disk does, or no longer.
func (in *installation) refuseWrites(bucket string, on bool) {
	in.Helper()
	in.change(bucket, func(c *jetstream.StreamConfig) {
		if c.MaxMsgSize = -1; on {
			c.MaxMsgSize = 1
		}
	})
}
