package tests

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/embedded"
	"github.com/leafbus/leafbus/internal/natskit"
	"github.com/leafbus/leafbus/internal/testkit"
)

// natsServer is a NATS server in the test's process, so that tests can stop it,
// change what it stores, and start it again at the same address.
type natsServer struct {
	*embedded.Server
	t   *testing.T
	cfg embedded.Config
}

func newNATS(t *testing.T) *natsServer {
	t.Helper()
	return newNATSFrom(t, "")
}

// newNATSFrom takes a nats-server configuration.
func newNATSFrom(t *testing.T, file string) *natsServer {
	t.Helper()
	s := &natsServer{t: t, cfg: embedded.Config{
		Listen: testkit.FreeAddress(t), ConfigFile: file, StoreDir: t.TempDir(), Log: testkit.Quiet,
	}}
	s.start()
	t.Cleanup(func() { s.Close() })
	return s
}

func (s *natsServer) start() {
	s.t.Helper()
	server, err := embedded.Start(s.cfg)
	if err != nil {
		s.t.Fatal(err)
	}
	s.Server = server
	s.cfg.Listen = strings.TrimPrefix(server.ClientURL(), "nats://")
}

// connect connects to a server that may go and come back.
func connect(t *testing.T, url string, opts ...nats.Option) *nats.Conn {
	t.Helper()
	nc, err := natskit.Dial(url, append([]nats.Option{
		nats.MaxReconnects(-1), nats.ReconnectWait(20 * time.Millisecond),
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}),
	}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

func client(t *testing.T, url string) *bus.Client {
	t.Helper()
	return bus.NewClient(connect(t, url))
}

func jetStream(t *testing.T, nc *nats.Conn) jetstream.JetStream {
	t.Helper()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	return js
}

// ask sends a request and returns the reply.
func ask(t *testing.T, nc *nats.Conn, subject, body string) *nats.Msg {
	t.Helper()
	msg, err := nc.Request(subject, []byte(body), patience)
	if err != nil {
		t.Fatalf("request on %q: %v", subject, err)
	}
	return msg
}

// wireError is the body of an error, as the contract has it.
type wireError struct {
	Code    int    `json:"code"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
	RetryMS int64  `json:"retry_after_ms"`
}

// refusal reads a reply that must be an error, and checks its form.
func refusal(t *testing.T, msg *nats.Msg) wireError {
	t.Helper()
	var e wireError
	strict := json.NewDecoder(strings.NewReader(string(msg.Data)))
	strict.DisallowUnknownFields()
	if err := strict.Decode(&e); err != nil {
		t.Errorf("the body %q is not that of an error: %v", msg.Data, err)
		return e
	}
	if got, err := json.Number(msg.Header.Get("Nats-Service-Error-Code")).Int64(); err != nil || int(got) != e.Code {
		t.Errorf("the header says code %q, the body %d", msg.Header.Get("Nats-Service-Error-Code"), e.Code)
	}
	if got := msg.Header.Get("Nats-Service-Error"); got == "" || got != e.Message {
		t.Errorf("the header says %q, the body %q", got, e.Message)
	}
	if escaped := `\u00`; strings.Contains(string(msg.Data), escaped+"3c") || strings.Contains(string(msg.Data), escaped+"26") {
		t.Errorf("the body %s has HTML escapes", msg.Data)
	}
	return e
}

// refused checks that a reply is an error with this code and reason.
func refused(t *testing.T, msg *nats.Msg, code int, reason bus.Reason) {
	t.Helper()
	if e := refusal(t, msg); e.Code != code || e.Reason != string(reason) {
		t.Errorf("answered %q, want %d %s", msg.Data, code, reason)
	}
}

// granted checks that a reply is no error.
func granted(t *testing.T, msg *nats.Msg) {
	t.Helper()
	if len(msg.Header) > 0 {
		t.Fatalf("answered %q with headers %v", msg.Data, msg.Header)
	}
}

// reply reads the JSON of a reply that must be no error.
func reply[T any](t *testing.T, msg *nats.Msg) T {
	t.Helper()
	granted(t, msg)
	return parse[T](t, msg.Data)
}

// parse reads JSON of which every field must be known.
func parse[T any](t *testing.T, data []byte) T {
	t.Helper()
	var v T
	strict := json.NewDecoder(strings.NewReader(string(data)))
	strict.DisallowUnknownFields()
	if err := strict.Decode(&v); err != nil {
		t.Fatalf("%q: %v", data, err)
	}
	return v
}
