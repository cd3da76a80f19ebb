package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/generator"
	"github.com/leafbus/leafbus/bus/kvstore"
	"github.com/leafbus/leafbus/snowflake"
)

// The echo is a micro service like leaf-segment, but for what it does: it
// answers with the request's body, which is as long as an ID.
const (
	echoSubjects = "echo.segment.>"
	echoSubject  = "echo.segment.bench"
	echoBody     = "1000000"

	// Here it answers with a range of usual length.
	echoRange       = "echo.range"
	echoRangeAnswer = "1000000001-1000100000"
)

// requestTimeout is for a call that is never answered.
const requestTimeout = 5 * time.Second

// batch is how many IDs are asked for at a time: of a tag of their own, or
// snowflakes.
type batch struct {
	count   int64
	tag     allocator.Tag // without a name: snowflakes
	callers []int
}

func (b batch) subject() string {
	if b.tag.Name == "" {
		return bus.SubjectSnowflake
	}
	return bus.SubjectSegment + "." + b.tag.Name
}

func (b batch) kind() string {
	if b.tag.Name == "" {
		return "snowflake"
	}
	return "segment"
}

// The tag of the largest batches has a larger step, as its operator would give
// it: a batch beyond the step takes a write to the store. Even so these batches
// use up the largest step within milliseconds, so refills are part of their row.
var batches = []batch{
	{1, allocator.Tag{Name: "bench", MaxID: 1, Step: allocator.DefaultStep}, []int{1, 16, 64}},
	{1_000, allocator.Tag{Name: "bench.1000", MaxID: 1, Step: allocator.DefaultStep}, []int{1, 16}},
	{100_000, allocator.Tag{Name: "bench.100000", MaxID: 1, Step: 1_000_000}, []int{1, 16}},
	{1, allocator.Tag{}, []int{1, 16, 64}},
	{10, allocator.Tag{}, []int{16}},
}

// overNATS compares requests for IDs with requests to an echo. Both responders
// sit at the server in the same way; one client connection asks both.
func overNATS(ctx context.Context, p plan) (t *table, err error) {
	s, err := openSite()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	stop, err := s.generate(func(c *generator.Config) {
		for _, b := range batches {
			if b.tag.Name != "" {
				c.Tags = append(c.Tags, b.tag)
			}
		}
	})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	echo, err := s.echo()
	if err != nil {
		return nil, err
	}
	defer echo.Close()
	client, err := s.dial()
	if err != nil {
		return nil, err
	}
	defer client.Close()

	t = newTable("over NATS", "callers", "requests/s", "echo's", "ratio", "IDs/s",
		"p50 µs", "echo's", "p99 µs", "echo's", "p99.9 µs", "echo's")
	for _, b := range batches {
		for _, callers := range b.callers {
			results, err := p.compare(ctx, callers,
				func(int) error { return ask(client, echoSubject, []byte(echoBody)) },
				func(int) error {
					return ask(client, b.subject(), strconv.AppendInt(nil, b.count, 10))
				})
			if err != nil {
				return nil, err
			}
			base, ours := results[0], results[1]
			rate := median(ours, perSecond)
			t.add(b.kind()+", IDs a request: "+whole(float64(b.count)), strconv.Itoa(callers),
				whole(rate), whole(median(base, perSecond)), hundredths(ratio(ours, base, perSecond)), whole(rate*float64(b.count)),
				whole(median(ours, p50)), whole(median(base, p50)),
				whole(median(ours, p99)), whole(median(base, p99)),
				whole(median(ours, p999)), whole(median(base, p999)))
		}
	}
	return t, nil
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

// echo starts the echo on a connection of its own, which ends it.
func (s *site) echo() (*nats.Conn, error) {
	nc, err := s.attach()
	if err != nil {
		return nil, err
	}
	service, err := micro.AddService(nc, micro.Config{Name: "echo", Version: bus.Version, QueueGroup: bus.QueueGroup})
	if err == nil {
		err = service.AddEndpoint("echo", micro.HandlerFunc(func(r micro.Request) { r.Respond(r.Data()) }),
			micro.WithEndpointSubject(echoSubjects))
	}
	if err == nil {
		err = service.AddEndpoint("range", micro.HandlerFunc(func(r micro.Request) { r.Respond([]byte(echoRangeAnswer)) }),
			micro.WithEndpointSubject(echoRange))
	}
	if err == nil {
		err = nc.Flush()
	}
	if err != nil {
		nc.Close()
		return nil, err
	}
	return nc, nil
}

// generate starts a generator, wired as `leaf serve` does it, and waits until
// it answers. Its tags are in the KV store unless configure says otherwise. stop
// drains it.
func (s *site) generate(configure func(*generator.Config)) (stop func() error, err error) {
	_, stop, err = s.generator(configure)
	return stop, err
}

// generator is generate, for those who ask the generator itself too.
func (s *site) generator(configure func(*generator.Config)) (g *generator.Generator, stop func() error, err error) {
	marks, err := allocator.OpenMarks(s.dir + "/marks")
	if err != nil {
		return nil, nil, err
	}
	state, err := s.state()
	if err != nil {
		return nil, nil, errors.Join(err, marks.Close())
	}
	file, err := snowflake.OpenFile(s.dir + "/worker")
	if err != nil {
		return nil, nil, errors.Join(err, marks.Close())
	}
	ready := make(chan struct{})
	store := kvstore.New(state)
	config := generator.Config{
		Conn: state.Conn, JS: state.JS, Store: store, Marks: marks, Node: "bench", Log: s.log,
		Join: func(context.Context, func(context.Context) error) (generator.Identity, error) {
			return generator.Identity{}, nil
		}, // the site is new
		Open:       store.Open,
		OpenEvents: func(ctx context.Context) error { return kvstore.OpenEvents(ctx, state, kvstore.DefaultEventsMaxBytes) },
		Ready:      func() { close(ready) },
		Snowflake: snowflake.Config{
			Layout: snowflake.DefaultLayout(), Registry: kvstore.NewWorkers(state), File: file,
			LastWorker: snowflake.DefaultLayout().Workers() - 1,
		},
	}
	configure(&config)
	g = generator.New(config)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- errors.Join(g.Run(ctx), marks.Close(), file.Close()) }()
	select {
	case <-ready:
		return g, func() error { cancel(); return <-ended }, nil
	case err := <-ended:
		cancel()
		return nil, nil, err
	}
}
