package embedded

import (
	"bytes"
	"log/slog"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/internal/testkit"
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

// What the file says about pings holds.
func TestPings(t *testing.T) {
	for file, want := range map[string][2]time.Duration{ // of clients, of routes; 0: that of clients
		"":                     {time.Second, 0},
		`ping_interval: "20s"`: {20 * time.Second, 0},
		`cluster { name: c, listen: "127.0.0.1:-1", ping_interval: "7s" }`: {time.Second, 7 * time.Second},
	} {
		opts, err := config(t, file).options()
		if err != nil {
			t.Fatal(err)
		}
		if got := [2]time.Duration{opts.PingInterval, opts.Cluster.PingInterval}; got != want || opts.MaxPingsOut != 0 {
			t.Errorf("%q: pings every %v, at most %d without an answer; want %v", file, got, opts.MaxPingsOut, want)
		}
	}
}

// Pings must not wait long behind the copy of a stream, unless the file says otherwise.
func TestCatchup(t *testing.T) {
	for file, want := range map[string]int64{"": 8 << 20, `jetstream { max_outstanding_catchup: 32MB }`: 32 << 20} {
		opts, err := config(t, file).options()
		if err != nil {
			t.Fatal(err)
		}
		if got := opts.JetStreamMaxCatchup; got != want {
			t.Errorf("%q: %d bytes under way, want %d", file, got, want)
		}
	}
}

// A client that hangs gets no requests after some seconds.
func TestClientThatHangsIsDropped(t *testing.T) {
	t.Parallel()
	s := start(t, config(t, ""))
	hangs, err := net.Dial("tcp", strings.TrimPrefix(s.ClientURL(), "nats://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { hangs.Close() })
	if _, err := hangs.Write([]byte("CONNECT {\"verbose\":false}\r\nSUB x q 1\r\nPING\r\n")); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	testkit.Eventually(t, "its subscription", func() bool { return s.ns.NumClients() == 1 })
	testkit.Eventually(t, "its end", func() bool { return s.ns.NumClients() == 0 })
	t.Logf("it was dropped after %v", time.Since(began).Round(time.Millisecond))
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

// The server keeps no plain secret, and so does not warn of one.
func TestNoPlainSecret(t *testing.T) {
	longest := strings.Repeat("x", 72)
	for name, change := range map[string]func(c *Config, secret string){
		"password": func(c *Config, secret string) { c.User, c.Password = "leaf", secret },
		"token":    func(c *Config, secret string) { c.Token = secret },
	} {
		t.Run(name, func(t *testing.T) {
			var log bytes.Buffer
			cfg := config(t, "")
			change(&cfg, longest)
			cfg.Log = slog.New(slog.NewTextHandler(&log, nil))
			opts, err := cfg.options()
			if err != nil || strings.Contains(opts.Password+opts.Authorization, "xx") {
				t.Errorf("password %q, token %q, %v", opts.Password, opts.Authorization, err)
			}
			s := start(t, cfg)
			connect(t, s, nats.UserInfo(cfg.User, cfg.Password), nats.Token(cfg.Token))
			s.Close()
			if strings.Contains(log.String(), "laintext") {
				t.Errorf("the server warns: %s", &log)
			}
			change(&cfg, longest+"x")
			if err := startError(t, cfg); !strings.Contains(err.Error(), "--"+name+" has 73 bytes") || strings.Contains(err.Error(), "xx") {
				t.Errorf("too long: %v", err)
			}
		})
	}
}
