package embedded

import (
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

func TestDefaultAddress(t *testing.T) {
	for name, c := range map[string]struct{ file, listen, want string }{
		"nothing":            {"", "", "127.0.0.1:4222"},
		"file with port":     {`port: 4333`, "", "127.0.0.1:4333"},
		"file with host":     {`host: "0.0.0.0"`, "", "0.0.0.0:4222"},
		"flag beats file":    {`listen: "0.0.0.0:4333"`, "127.0.0.1:4444", "127.0.0.1:4444"},
		"flag, any port":     {`port: 4333`, anyPort, anyPort},
		"flag, IPv6 address": {"", "[::1]:4444", "[::1]:4444"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := config(t, c.file)
			cfg.Listen = c.listen
			opts, err := cfg.options()
			if err != nil {
				t.Fatal(err)
			}
			ns, err := server.NewServer(opts) // fills nats-server's defaults
			if err != nil {
				t.Fatal(err)
			}
			defer ns.Shutdown()
			if got := strings.TrimPrefix(ns.ClientURL(), "nats://"); got != c.want {
				t.Errorf("listens on %s, want %s", got, c.want)
			}
		})
	}
}

func TestBadListen(t *testing.T) {
	for _, listen := range []string{"4222", "127.0.0.1", "127.0.0.1:", "127.0.0.1:nats", "127.0.0.1:-1", "127.0.0.1:65536"} {
		cfg := config(t, "")
		cfg.Listen = listen
		if err := startError(t, cfg); !strings.Contains(err.Error(), strconv.Quote(listen)) {
			t.Errorf("%q is not named", listen)
		}
	}
}

// What makes IDs durable holds whatever the file says.
func TestFileCannotWeakenStore(t *testing.T) {
	for name, file := range map[string]string{
		"none":      "",
		"sync":      `jetstream { sync_interval: "10m", store_dir: "OTHER" }`,
		"disabled":  `jetstream: disabled`,
		"switched":  `jetstream { enabled: false, sync_interval: "10m" }`,
		"and right": `jetstream { sync_interval: always }`,
	} {
		t.Run(name, func(t *testing.T) {
			other := filepath.Join(t.TempDir(), "other")
			cfg := config(t, strings.ReplaceAll(file, "OTHER", other))
			s := start(t, cfg)
			js := s.ns.JetStreamConfig()
			if js == nil {
				t.Fatal("JetStream is off")
			}
			if !js.SyncAlways {
				t.Error("writes are not synced")
			}
			if want := filepath.Join(cfg.StoreDir, "jetstream"); js.StoreDir != want {
				t.Errorf("stores in %s, want %s", js.StoreDir, want)
			}
		})
	}
}

// What the file says about the name, pings, the copy of a stream and reports of lost routes holds. Else a client that
// hangs is dropped within seconds, pings do not wait long behind a copy, and a lost route is logged once a minute.
func TestDefaultsOfTheFile(t *testing.T) {
	type settings struct {
		name                              string
		clients, routes, catchup, reports int64 // pings in seconds; 0: that of clients
	}
	for file, want := range map[string]settings{
		"":                     {"flag", 1, 0, 8 << 20, 60},
		`server_name: file`:    {"file", 1, 0, 8 << 20, 60},
		`ping_interval: "20s"`: {"flag", 20, 0, 8 << 20, 60},
		`cluster { name: c, listen: "127.0.0.1:-1", ping_interval: "7s" }`: {"flag", 1, 7, 8 << 20, 60},
		`reconnect_error_reports: 5`:                                       {"flag", 1, 0, 8 << 20, 5},
		`jetstream { max_outstanding_catchup: 32MB }`:                      {"flag", 1, 0, 32 << 20, 60},
	} {
		cfg := config(t, file)
		cfg.Name = "flag"
		opts, err := cfg.options()
		if err != nil {
			t.Fatal(err)
		}
		got := settings{opts.ServerName, int64(opts.PingInterval / time.Second), int64(opts.Cluster.PingInterval / time.Second),
			opts.JetStreamMaxCatchup, int64(opts.ReconnectErrorReports)}
		if got != want || opts.MaxPingsOut != 0 {
			t.Errorf("%q: %+v, at most %d pings without an answer; want %+v", file, got, opts.MaxPingsOut, want)
		}
	}
}

// A reload would read the file alone and so drop what the Config demands.
func TestNoReload(t *testing.T) {
	s := start(t, config(t, `max_payload: 1MB`))
	if err := s.ns.Reload(); err == nil || !strings.Contains(err.Error(), "when a file is provided") {
		t.Errorf("the file was read again: %v", err)
	}
}

// A file that cannot be read is named.
func TestBadFile(t *testing.T) {
	for _, file := range []string{`authorization { user: `, `jetsream: enabled`, `port: "many"`, ""} {
		cfg := config(t, file)
		if file == "" {
			cfg.ConfigFile = filepath.Join(t.TempDir(), "none.conf")
		}
		if err := startError(t, cfg); !strings.Contains(err.Error(), cfg.ConfigFile) {
			t.Errorf("%q: the file is not named", file)
		}
	}
}
