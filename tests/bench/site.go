package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nats.go/micro"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus/embedded"
	"github.com/leafbus/leafbus/bus/gateway"
	"github.com/leafbus/leafbus/bus/generator"
	"github.com/leafbus/leafbus/bus/kvstore"
	"github.com/leafbus/leafbus/internal/wire"
	"github.com/leafbus/leafbus/snowflake"
)

// requestTimeout is for a call that is never answered.
const requestTimeout = 5 * time.Second

// The echo is a micro service like leaf-segment, but for what it does: it
// answers with the request's body, which is as long as an ID.
const (
	echoSubjects = "echo.segment.>"
	echoSubject  = "echo.segment.bench"
	echoBody     = "1000000"
)

// tagNamed is a new tag.
func tagNamed(name string, step int64) allocator.Tag {
	return allocator.Tag{Name: name, MaxID: 1, Step: step}
}

// site is a NATS server as `leaf serve` embeds it, on a folder of its own.
type site struct {
	*lab
	dir        string
	server     *embedded.Server
	log        *slog.Logger
	generators int // that were started
}

// tempDir makes a folder.
func (l *lab) tempDir() string {
	dir := must(os.MkdirTemp("", "leaf-bench-"))
	l.atEnd(func() error { return os.RemoveAll(dir) })
	return dir
}

// site starts a NATS server.
func (l *lab) site() *site {
	s := &site{lab: l, dir: l.tempDir()}
	s.log = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	s.server = must(embedded.Start(embedded.Config{Listen: "127.0.0.1:0", StoreDir: s.dir + "/nats", Log: s.log}))
	l.atEnd(func() error { s.server.Close(); return nil })
	check(kvstore.CreateInstallation(l.ctx, s.state(), own))
	return s
}

// own is the installation of each site.
var own = kvstore.Installation{ID: "bench", Store: "kv", Registry: "kv", Layout: snowflake.DefaultLayout()}

// dial connects over TCP, as clients do.
func (s *site) dial(opts ...nats.Option) *nats.Conn {
	nc := must(nats.Connect(s.server.ClientURL(), opts...))
	s.atEnd(func() error { nc.Close(); return nil })
	return nc
}

// state attaches what keeps state in JetStream, within the process, as the generator of an
// embedded server does.
func (s *site) state() kvstore.Config {
	nc := s.dial(s.server.InProcess())
	return kvstore.Config{JS: must(jetstream.New(nc)), Log: s.log}
}

// records are those of the tags.
func (s *site) records(state kvstore.Config) *kvstore.Records {
	records := kvstore.NewRecords(state)
	check(records.Open(s.ctx, own))
	return records
}

// generate starts a generator with these tags, wired as `leaf serve` does it, and waits until it answers. All
// generators run in this process.
func (s *site) generate(tags []allocator.Tag, observer generator.Observer) *generator.Generator {
	s.generators++
	node := fmt.Sprint("bench", s.generators)
	dir := s.dir + "/" + node
	check(os.Mkdir(dir, 0o700))
	index := must(allocator.OpenIndex(dir + "/marks"))
	s.atEnd(index.Close)
	file := must(snowflake.OpenFile(dir + "/worker"))
	s.atEnd(file.Close)
	state, ready := s.state(), make(chan struct{})
	records := s.records(state)
	g := generator.New(generator.Config{
		Conn: state.JS.Conn(), JS: state.JS, Records: records, Index: index, Keys: kvstore.NewKeys(state), Tags: tags,
		Node: node, Log: s.log, Observer: observer,
		Join: func(context.Context, func(context.Context) error) (generator.Identity, error) {
			return generator.Identity{}, nil // the site is new
		},
		Open:       func(ctx context.Context) error { return records.Open(ctx, own) },
		EndLoss:    records.EndLoss,
		OpenEvents: kvstore.Events{Config: state}.Open,
		Ready:      func() { close(ready) },
		Snowflake: snowflake.Config{
			Layout: snowflake.DefaultLayout(), Registry: kvstore.NewWorkers(state), File: file,
			LastWorker: snowflake.DefaultLayout().Workers() - 1,
		},
	})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- g.Run(ctx) }()
	select {
	case <-ready:
		s.atEnd(func() error { cancel(); return <-ended })
	case err := <-ended:
		cancel()
		check(errors.Join(err, errors.New("the generator ended")))
	}
	return g
}

// faced starts a generator whose HTTP face observes it for its metrics. The face does not run yet.
func (s *site) faced(tags ...allocator.Tag) *gateway.Server {
	listener := must(net.Listen("tcp", "127.0.0.1:0"))
	s.atEnd(func() error { _ = listener.Close(); return nil }) // the face has closed it, if it ran
	metrics := gateway.NewMetrics()
	return gateway.New(gateway.Config{Listener: listener, Generator: s.generate(tags, metrics),
		JS: must(jetstream.New(s.dial())), Metrics: metrics, Log: s.log, DrainTimeout: requestTimeout,
		Tokens: func() gateway.Tokens { return gateway.Tokens{} }, Dead: func() error { return nil }})
}

// echo starts the echo.
func (s *site) echo() {
	nc := s.dial(s.server.InProcess())
	service := must(micro.AddService(nc, micro.Config{Name: "echo", Version: wire.Version(), QueueGroup: wire.QueueGroup}))
	check(service.AddEndpoint("echo", micro.HandlerFunc(func(r micro.Request) { r.Respond(r.Data()) }),
		micro.WithEndpointSubject(echoSubjects)))
	check(nc.Flush())
}

// ask makes a request.
func ask(nc *nats.Conn, subject string, body []byte) error {
	msg, err := nc.Request(subject, body, requestTimeout)
	if err != nil {
		return fmt.Errorf("%s: %w", subject, err)
	}
	if msg.Header.Get(micro.ErrorCodeHeader) != "" {
		return fmt.Errorf("%s: %s", subject, msg.Header.Get(micro.ErrorHeader))
	}
	return nil
}

// echoes is a way whose callers ask the echo.
func (l *lab) echoes(nc *nats.Conn) way {
	return l.calls(func(int) error { return ask(nc, echoSubject, []byte(echoBody)) })
}

// requests is a way whose callers ask a generator for count IDs at a time.
func (l *lab) requests(nc *nats.Conn, subject string, count int64) way {
	return l.calls(func(int) error { return ask(nc, subject, strconv.AppendInt(nil, count, 10)) })
}

// segment is the subject of a tag's IDs.
func segment(tag allocator.Tag) string { return wire.SubjectSegment + "." + tag.Name }
