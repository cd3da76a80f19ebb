package embedded

import (
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/internal/testkit"
)

// anyPort keeps tests apart from each other and from a real generator.
const anyPort = "127.0.0.1:0"

func TestMain(m *testing.M) { testkit.Main(m) }

// config is a Config on a free port and a folder of its own, with file as its
// configuration file.
func config(t *testing.T, file string) Config {
	t.Helper()
	cfg := Config{Listen: anyPort, StoreDir: t.TempDir(), Log: testkit.Quiet}
	if file != "" {
		cfg.ConfigFile = filepath.Join(t.TempDir(), "nats.conf")
		if err := os.WriteFile(cfg.ConfigFile, []byte(file), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return cfg
}

func start(t *testing.T, cfg Config) *Server {
	t.Helper()
	s, err := Start(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// startError is the error of a start that must fail.
func startError(t *testing.T, cfg Config) error {
	t.Helper()
	s, err := Start(cfg)
	if err == nil {
		s.Close()
		t.Fatal("started")
	}
	t.Log(err)
	return err
}

func connect(t *testing.T, s *Server, opts ...nats.Option) *nats.Conn {
	t.Helper()
	nc, err := nats.Connect(s.ClientURL(), opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

func bucket(t *testing.T, nc *nats.Conn) jetstream.KeyValue {
	t.Helper()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	kv, err := js.CreateOrUpdateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: "TEST"})
	if err != nil {
		t.Fatal(err)
	}
	return kv
}

// busyAddress is an address that something else listens on.
func busyAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", anyPort)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l.Addr().String()
}

// An address in use is named, also one of the listeners that nats-server opens by itself. Nothing is written before.
func TestAddressInUse(t *testing.T) {
	for name, file := range map[string]string{
		"clients":   "",
		"websocket": `websocket { listen: "ADDR", no_tls: true }`,
		"leafnodes": `leafnodes { listen: "ADDR" }`,
		"cluster":   `cluster { name: c, listen: "ADDR", routes: ["nats://127.0.0.1:1"] }`,
	} {
		t.Run(name, func(t *testing.T) {
			addr := busyAddress(t)
			cfg := config(t, strings.ReplaceAll(file, "ADDR", addr))
			cfg.Name = "a"
			if file == "" {
				cfg.Listen = addr
			}
			if err := startError(t, cfg); !errors.Is(err, ErrAddressInUse) || !strings.Contains(err.Error(), addr) {
				t.Errorf("want ErrAddressInUse with %s", addr)
			}
			if entries, _ := os.ReadDir(cfg.StoreDir); file == "" && len(entries) > 0 {
				t.Errorf("the store was touched: %v", entries)
			}
		})
	}
}

func TestStoreFolder(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	readOnly := t.TempDir()
	if err := os.Chmod(readOnly, 0o500); err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() == 0 {
		readOnly = "/proc" // root may write to any folder of a disk
	}
	below := filepath.Join(file, "store")
	for name, c := range map[string]struct{ dir, want string }{
		"a file in its place": {file, file + " cannot be made"},
		"below a file":        {below, below + " cannot be made"},
		"not writable":        {readOnly, readOnly + " is not writable"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := config(t, "")
			cfg.StoreDir = c.dir
			if err := startError(t, cfg); !strings.Contains(err.Error(), c.want) {
				t.Errorf("want %q", c.want)
			}
		})
	}
}

func TestClientURL(t *testing.T) {
	for listen, want := range map[string]string{"127.0.0.1:0": "nats://127.0.0.1:", "localhost:0": "nats://localhost:",
		"0.0.0.0:0": "nats://127.0.0.1:", "[::]:0": "nats://127.0.0.1:"} {
		cfg := config(t, "")
		cfg.Listen, cfg.Token = listen, "secret"
		s := start(t, cfg)
		if connect(t, s, nats.Token("secret")); !strings.HasPrefix(s.ClientURL(), want) {
			t.Errorf("%s: %s, want %s", listen, s.ClientURL(), want)
		}
	}
}

func TestClose(t *testing.T) {
	s := start(t, config(t, ""))
	nc := connect(t, s, s.InProcess(), nats.NoReconnect())
	closed := nc.StatusChanged(nats.CLOSED)

	var both sync.WaitGroup
	both.Go(s.Close)
	both.Go(s.Close)
	both.Wait()
	s.Close()

	select {
	case <-closed:
	case <-time.After(testkit.Patience):
		t.Error("the in-process connection is still open")
	}
	if _, err := nats.Connect(s.ClientURL()); !errors.Is(err, nats.ErrNoServers) {
		t.Errorf("connected after Close: %v", err)
	}
	if _, err := nats.Connect("", s.InProcess()); err == nil {
		t.Error("connected in-process after Close")
	}
}

func TestLogger(t *testing.T) {
	var out strings.Builder
	l := &logger{out: slog.New(slog.NewTextHandler(&out, nil))}
	l.Noticef("notice %d", 1)
	l.Warnf("warning %d", 2)
	l.Errorf("error %d", 3)
	l.Errorf("Error trying to connect to route (attempt %v): %v", 1, "refused") // as nats-server logs it
	l.Fatalf("first %d", 4)
	l.Fatalf("second %d", 5)
	for text, want := range map[string]bool{
		"notice 1": false, `level=WARN msg="warning 2"`: true, `level=ERROR msg="error 3"`: true,
		`level=WARN msg="Error trying to connect to route (attempt 1): refused"`: true, `level=ERROR msg="first 4"`: true,
	} {
		if strings.Contains(out.String(), text) != want {
			t.Errorf("%s: want %v in\n%s", text, want, &out)
		}
	}
	if got := *l.fatal.Load(); got != "first 4" {
		t.Errorf("remembered %q", got)
	}
}
