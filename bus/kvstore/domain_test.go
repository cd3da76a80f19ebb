package kvstore

import (
	"net/url"
	"strconv"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/internal/natskit"
	"github.com/leafbus/leafbus/internal/testkit"
)

// Records can be written over a leaf node of NATS without JetStream, which passes on only what names the domain.
func TestRecordsOverALeafNode(t *testing.T) {
	t.Parallel()
	run := func(o server.Options) *server.Server {
		o.Host, o.Port, o.NoSigs = "127.0.0.1", server.RANDOM_PORT, true
		s, err := server.NewServer(&o)
		if err != nil {
			t.Fatal(err)
		}
		s.Start()
		t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
		if !s.ReadyForConnections(testkit.Patience) {
			t.Fatal("NATS is not ready")
		}
		return s
	}
	to, err := url.Parse("nats-leaf://" + testkit.FreeAddress(t))
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.Atoi(to.Port())
	if err != nil {
		t.Fatal(err)
	}
	hub := server.Options{JetStream: true, StoreDir: t.TempDir(), JetStreamDomain: "hub"}
	hub.LeafNode.Host, hub.LeafNode.Port = to.Hostname(), port
	run(hub)
	far := server.Options{}
	far.LeafNode.Remotes = []*server.RemoteLeafOpts{{URLs: []*url.URL{to}}}
	s := run(far)
	nc, err := natskit.Dial(s.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.NewWithDomain(nc, "hub")
	if err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "the leaf node leads to JetStream", func() bool {
		_, err := js.AccountInfo(t.Context())
		return err == nil
	})
	r := openRecordsOf(t, Config{JS: js})
	if made := swap(t, r, trend("order", 5), 0); made == 0 {
		t.Error("the record has no revision")
	}
}
