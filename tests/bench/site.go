package main

import (
	"errors"
	"log/slog"
	"os"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus/embedded"
	"github.com/leafbus/leafbus/bus/generator"
	"github.com/leafbus/leafbus/bus/kvstore"
)

// site is a NATS server as `leaf serve` embeds it, on a folder of its own.
type site struct {
	dir    string
	server *embedded.Server
	log    *slog.Logger
}

func openSite() (*site, error) {
	s := &site{log: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))}
	var err error
	if s.dir, err = os.MkdirTemp("", "leaf-bench-"); err != nil {
		return nil, err
	}
	s.server, err = embedded.Start(embedded.Config{Listen: "127.0.0.1:0", StoreDir: s.dir + "/nats", Log: s.log})
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(s.dir))
	}
	return s, nil
}

// close stops the server and removes the folder.
func (s *site) close() error {
	s.server.Close()
	return os.RemoveAll(s.dir)
}

// dial connects over TCP, as clients do.
func (s *site) dial(opts ...nats.Option) (*nats.Conn, error) {
	return nats.Connect(s.server.ClientURL(), opts...)
}

// attach connects within the process, as the generator of an embedded server does.
func (s *site) attach() (*nats.Conn, error) {
	return nats.Connect(s.server.ClientURL(), s.server.InProcess())
}

// openWith opens a site with a generator that has these tags. stop drains that, and
// closes the site.
func openWith(tags ...allocator.Tag) (s *site, stop func() error, err error) {
	if s, err = openSite(); err != nil {
		return nil, nil, err
	}
	drain, err := s.generate(func(c *generator.Config) { c.Tags = tags })
	if err != nil {
		return nil, nil, errors.Join(err, s.close())
	}
	return s, func() error { return errors.Join(drain(), s.close()) }, nil
}

// state attaches what keeps state in JetStream.
func (s *site) state() (kvstore.Config, error) {
	nc, err := s.attach()
	if err != nil {
		return kvstore.Config{}, err
	}
	js, err := jetstream.New(nc)
	if err != nil {
		nc.Close()
		return kvstore.Config{}, err
	}
	return kvstore.Config{Conn: nc, JS: js, Log: s.log}, nil
}
