package cli

import (
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/bus/installation"
	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/tests/kit"
)

// A generator's connection goes to another server of its list within 5 s when its server hangs. It does so
// also while a write hangs, because the socket's buffers are full.
func TestConnectionLeavesAServerThatHangs(t *testing.T) {
	cleanEnv(t)
	for name, body := range map[string][]byte{"nothing to write": nil, "a write hangs": make([]byte, 64<<10)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bad, good := startNATS(t, &server.Options{}), startNATS(t, &server.Options{})
			link, err := kit.StartLink(bad.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(link.Close)
			flags := Conn{Server: "nats://" + link.Addr() + "," + good.ClientURL(), Timeout: 5 * time.Second}
			opts, err := flags.Options("test")
			if err != nil {
				t.Fatal(err)
			}
			reconnected := make(chan struct{}, 1)
			nc, err := installation.Connect(testkit.Quiet, flags.Server, append(opts,
				nats.DontRandomize(), nats.ReconnectBufSize(-1),
				nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}),
				nats.ReconnectHandler(func(*nats.Conn) { reconnected <- struct{}{} }))...)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(nc.Close)
			link.Hang(true)
			for range 1 << 10 { // more than any socket buffers
				if body == nil || nc.Publish("x", body) != nil {
					break
				}
			}
			select {
			case <-reconnected:
			case <-time.After(testkit.Patience):
				t.Fatal("it stays with the server that hangs")
			}
			if at := nc.ConnectedUrl(); at != good.ClientURL() {
				t.Errorf("it is connected to %s", at)
			}
		})
	}
}
