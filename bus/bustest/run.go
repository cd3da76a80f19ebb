package bustest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus/generator"
	"github.com/leafbus/leafbus/bus/installation"
	"github.com/leafbus/leafbus/bus/kvstore"
	"github.com/leafbus/leafbus/snowflake"
)

const (
	// node is the generator's name; its NATS knows no other.
	node = "bustest"
	// startTimeout bounds a start, on a machine that is busy with other tests too.
	startTimeout = 30 * time.Second
	startLook    = 2 * time.Millisecond
	// drainTimeout is what leaf serve has without flags.
	drainTimeout = 10 * time.Second
	// eventsMaxBytes bounds the event stream: NATS refuses one that is larger than
	// the disk's room, and a test needs little.
	eventsMaxBytes = 16 << 20
)

// run is a generator from its start to its stop.
type run struct {
	cancel context.CancelFunc
	done   chan struct{}
	err    error // what ended it; once done is closed
}

// stop ends it, if it has not ended by itself.
func (r *run) stop() error {
	r.cancel()
	<-r.done
	return r.err
}

// start runs the generator, and waits until IDs can be had.
func (g *Generator) start() error {
	ctx, cancel := context.WithCancel(context.Background())
	r := &run{cancel: cancel, done: make(chan struct{})}
	ready := make(chan *generator.Generator, 1)
	go func() {
		defer close(r.done)
		r.err = g.serve(ctx, ready)
	}()
	if err := r.await(ready); err != nil {
		r.stop() // if it failed, err says how
		return err
	}
	g.run = r
	return nil
}

// serve runs the generator until the context is done, and closes what it opened. It is wired as
// leaf serve is. ready gets the generator when requests are answered.
func (g *Generator) serve(ctx context.Context, ready chan<- *generator.Generator) (err error) {
	dir, err := installation.OpenFolder(g.dir, node)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dir.Close()) }()
	options := append(installation.Options(g.log, drainTimeout), g.server.InProcess(), nats.Name("leaf "+node))
	nc, err := installation.WhileSlow(func() (*nats.Conn, error) { return nats.Connect(g.server.ClientURL(), options...) })
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	layout := snowflake.DefaultLayout()
	var made *generator.Generator
	config, err := installation.Config{
		State: kvstore.Config{JS: js, Log: g.log}, EventsMaxBytes: eventsMaxBytes, Server: g.server, Folder: dir,
	}.Generator(generator.Config{
		Snowflake:    snowflake.Config{Layout: layout, LastWorker: layout.Workers() - 1},
		Tags:         g.tags,
		MaxBatch:     allocator.DefaultMaxBatch,
		DrainTimeout: drainTimeout,
		Ready:        func() { ready <- made },
	})
	if err != nil {
		return err
	}
	made = generator.New(config)
	return made.Run(ctx)
}

// await waits until the generator has its tags and a worker. If these take long
// it answers requests before, with errors.
func (r *run) await(ready <-chan *generator.Generator) error {
	late := time.After(startTimeout)
	look := time.NewTicker(startLook)
	defer look.Stop()
	var made *generator.Generator
	for {
		select {
		case made = <-ready:
		case <-look.C:
		case <-r.done:
			return fmt.Errorf("the generator ended before it was ready: %w", r.err)
		case <-late:
			lacks := "it answers no requests"
			if made != nil {
				lacks = fmt.Sprintf("it lacks %v", made.Readiness().Reasons)
			}
			return fmt.Errorf("the generator is not ready after %v, its log may say more: %s", startTimeout, lacks)
		}
		if made != nil && made.Readiness().Ready {
			return nil
		}
	}
}
