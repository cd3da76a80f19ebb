package embedded

import (
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
)

func TestDefaultAddress(t *testing.T) {
	for name, c := range map[string]struct{ file, listen, want string }{
		"nothing":            {"", "", "127.0.0.1:4222"},
		"file without it":    {`max_payload: 1MB`, "", "127.0.0.1:4222"},
		"file with port":     {`port: 4333`, "", "127.0.0.1:4333"},
		"file with listen":   {`listen: 4333`, "", "127.0.0.1:4333"},
		"file with host":     {`host: "0.0.0.0"`, "", "0.0.0.0:4222"},
		"flag beats file":    {`listen: "0.0.0.0:4333"`, "127.0.0.1:4444", "127.0.0.1:4444"},
		"flag, any port":     {`port: 4333`, anyPort, anyPort},
		"flag, no host":      {"", ":4444", "0.0.0.0:4444"},
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

func TestListenBeatsFile(t *testing.T) {
	busy := busyAddress(t)
	s := start(t, config(t, `listen: "`+busy+`"`))
	if strings.HasSuffix(s.ClientURL(), busy) {
		t.Errorf("%s is the address of the file", s.ClientURL())
	}
	connect(t, s)
}

// What makes IDs durable holds whatever the file says.
func TestFileCannotWeakenStore(t *testing.T) {
	for name, file := range map[string]string{
		"none":      "",
		"sync":      `jetstream { sync_interval: "10m", store_dir: "OTHER" }`,
		"store":     `store_dir: "OTHER"`,
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

// A reload would read the file alone and so drop what the Config demands.
func TestNoReload(t *testing.T) {
	s := start(t, config(t, `max_payload: 1MB`))
	if err := s.ns.Reload(); err == nil || !strings.Contains(err.Error(), "when a file is provided") {
		t.Errorf("the file was read again: %v", err)
	}
}

func TestName(t *testing.T) {
	for file, want := range map[string]string{"": "flag", `server_name: file`: "file"} {
		t.Run(want, func(t *testing.T) {
			cfg := config(t, file)
			cfg.Name = "flag"
			if got := start(t, cfg).ns.Name(); got != want {
				t.Errorf("named %q", got)
			}
		})
	}
}

func TestBadFile(t *testing.T) {
	for name, file := range map[string]string{
		"syntax":        `authorization { user: `,
		"unknown field": `jetsream: enabled`,
		"wrong type":    `port: "many"`,
	} {
		t.Run(name, func(t *testing.T) {
			cfg := config(t, file)
			if err := startError(t, cfg); !strings.Contains(err.Error(), cfg.ConfigFile) {
				t.Error("the file is not named")
			}
		})
	}
	t.Run("missing", func(t *testing.T) {
		cfg := config(t, "")
		cfg.ConfigFile = filepath.Join(t.TempDir(), "none.conf")
		if err := startError(t, cfg); !strings.Contains(err.Error(), cfg.ConfigFile) {
			t.Error("the file is not named")
		}
	})
}
