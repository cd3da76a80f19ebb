package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"runtime/metrics"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus"
)

// bulks compares a bulk with as many requests, as many at a time, to an echo whose
// answers are as long. For one ID after the other the echo's client counts them
// in a bare loop.
func bulks(ctx context.Context, p plan) (t *table, err error) {
	// Where a batch is longer than the step, each costs a write to the store.
	tag := allocator.Tag{Name: "bench", MaxID: 1, Step: 1_000_000}
	small := allocator.Tag{Name: "bench.small", MaxID: 1, Step: allocator.DefaultStep}
	s, stop, err := openWith(tag, small)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	echo, err := s.echo()
	if err != nil {
		return nil, err
	}
	defer echo.Close()
	var wire meter
	nc, err := s.dial(nats.SetCustomDialer(&wire))
	if err != nil {
		return nil, err
	}
	defer nc.Close()
	client := bus.NewClient(nc)

	ranges := func(tag allocator.Tag, parallel int) func() error {
		return func() error {
			var n int64
			for r, err := range client.Ranges(ctx, tag.Name, p.ids, bus.Parallel(parallel)) {
				if err != nil {
					return err
				}
				n += r.Len()
			}
			return p.complete(n)
		}
	}
	ids := func() error {
		var n int64
		for _, err := range client.IDs(ctx, tag.Name, p.ids) {
			if err != nil {
				return err
			}
			n++
		}
		return p.complete(n)
	}

	t = newTable("bulk of "+whole(float64(p.ids))+" IDs", "parallel", "IDs/s", "echo's", "ratio", "ns/ID", "echo's",
		"bytes/ID on the wire", "echo's", "most live heap, KB", "echo's")
	for _, row := range []struct {
		name     string
		parallel int
		ours     func() error
		use      func(n int64) int64
	}{
		{"Ranges", 1, ranges(tag, 1), self[int64]},
		{"Ranges", bus.DefaultParallel, ranges(tag, bus.DefaultParallel), self[int64]},
		{"Ranges, step 1,000", bus.DefaultParallel, ranges(small, bus.DefaultParallel), self[int64]},
		{"IDs, one by one", bus.DefaultParallel, ids, count},
	} {
		bare := func() error { return p.echoes(nc, row.parallel, row.use) }
		if err := row.ours(); err != nil { // so that the generator's step has grown
			return nil, err
		}
		results, err := inTurns(ctx, max(1, p.rounds/2), []func() (pull, error){p.pull(&wire, bare), p.pull(&wire, row.ours)})
		if err != nil {
			return nil, err
		}
		base, ours := results[0], results[1]
		heaps, err := inTurns(ctx, max(1, p.rounds/longer), []func() (float64, error){mostLive(bare), mostLive(row.ours)})
		if err != nil {
			return nil, err
		}
		t.add(row.name, strconv.Itoa(row.parallel), whole(median(ours, pull.idsPerSecond)), whole(median(base, pull.idsPerSecond)),
			hundredths(ratio(ours, base, pull.idsPerSecond)), hundredths(median(ours, pull.nsPerID)), hundredths(median(base, pull.nsPerID)),
			fourPlaces(median(ours, pull.bytesPerID)), fourPlaces(median(base, pull.bytesPerID)),
			whole(median(heaps[1], self)/1e3), whole(median(heaps[0], self)/1e3))
	}
	return t, nil
}

// complete says whether a bulk was.
func (p plan) complete(n int64) error {
	if n != p.ids {
		return fmt.Errorf("a bulk of %d IDs had %d", p.ids, n)
	}
	return nil
}

// echoes makes as many requests as a bulk does, and uses as many IDs.
func (p plan) echoes(nc *nats.Conn, parallel int, use func(n int64) int64) error {
	requests := (p.ids + bus.DefaultBatch - 1) / bus.DefaultBatch
	answers := make(chan error, parallel)
	var asked atomic.Int64
	var wg sync.WaitGroup
	for range parallel {
		wg.Go(func() {
			for asked.Add(1) <= requests {
				answers <- ask(nc, echoRange, []byte(strconv.Itoa(bus.DefaultBatch)))
			}
		})
	}
	go func() { wg.Wait(); close(answers) }()
	var n int64
	var failed error
	for err := range answers {
		failed = errors.Join(failed, err)
		n += use(min(bus.DefaultBatch, p.ids-n))
	}
	if failed != nil {
		return failed
	}
	return p.complete(n)
}

// count counts to n.
func count(n int64) (counted int64) {
	for range n {
		counted++
	}
	return counted
}

// pull is one measurement of a bulk.
type pull struct {
	ids   int64
	took  time.Duration
	bytes int64 // on the wire, both ways
}

func (p plan) pull(wire *meter, bulk func() error) func() (pull, error) {
	return func() (pull, error) {
		bytes, begin := wire.bytes.Load(), time.Now()
		err := bulk()
		return pull{p.ids, time.Since(begin), wire.bytes.Load() - bytes}, err
	}
}

func (p pull) idsPerSecond() float64 { return float64(p.ids) / p.took.Seconds() }
func (p pull) nsPerID() float64      { return float64(p.took.Nanoseconds()) / float64(p.ids) }
func (p pull) bytesPerID() float64   { return float64(p.bytes) / float64(p.ids) }

// mostLive is by how much the heap grows during a bulk, garbage aside: it is
// collected all the time meanwhile. Server and generator are in it.
func mostLive(bulk func() error) func() (float64, error) {
	return func() (float64, error) {
		live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
		read := func() float64 {
			runtime.GC()
			metrics.Read(live)
			return float64(live[0].Value.Uint64())
		}
		before := read()
		most := before
		ended := make(chan error, 1)
		go func() { ended <- bulk() }()
		for {
			most = max(most, read())
			select {
			case err := <-ended:
				return most - before, err
			default:
			}
		}
	}
}

// meter dials connections whose bytes it counts.
type meter struct{ bytes atomic.Int64 }

// Dial implements [nats.CustomDialer].
func (m *meter) Dial(network, address string) (net.Conn, error) {
	c, err := net.Dial(network, address)
	if err != nil {
		return nil, err
	}
	return metered{c, m}, nil
}

type metered struct {
	net.Conn
	m *meter
}

func (c metered) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.m.bytes.Add(int64(n))
	return n, err
}

func (c metered) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.m.bytes.Add(int64(n))
	return n, err
}
