package main

import (
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

const (
	bytesPerID figure = "bytes per ID"
	heapGrowth figure = "bytes by which the live heap grows"
)

// bulks compares a bulk with as many requests, as many at a time, to an echo whose
// answers are as long. For one ID after the other the echo's client counts them
// in a bare loop.
func bulks(l *lab) *table {
	// Where a batch is longer than the step, each costs a write to the store.
	tag, small := tagNamed("bench", 1_000_000), tagNamed("bench.small", allocator.DefaultStep)
	s := l.site()
	s.generate([]allocator.Tag{tag, small})
	s.echo()
	var wire meter
	nc := s.dial(nats.SetCustomDialer(&wire))
	client := bus.NewClient(nc)

	bulk := func(get func(parallel int) (int64, error)) way { return l.bulk(&wire, get) }
	ranges := func(tag string) way {
		return bulk(func(parallel int) (n int64, err error) {
			for r, err := range client.Ranges(l.ctx, tag, l.ids, bus.Parallel(parallel)) {
				if err != nil {
					return n, err
				}
				n += r.Len()
			}
			return n, nil
		})
	}
	ids := bulk(func(int) (n int64, err error) {
		for _, err := range client.IDs(l.ctx, tag.Name, l.ids) {
			if err != nil {
				return n, err
			}
			n++
		}
		return n, nil
	})
	bare := bulk(func(parallel int) (int64, error) { return l.echoBulk(nc, parallel, func(n int64) int64 { return n }) })
	counted := bulk(func(parallel int) (int64, error) { return l.echoBulk(nc, parallel, count) })

	const echo, ours, echoHeap, ourHeap = 0, 1, 2, 3
	t := newTable("bulk of "+whole(float64(l.ids))+" IDs", "parallel",
		of("IDs/s", ours, idsPerSecond, whole), of("echo's", echo, idsPerSecond, whole), ratio("ratio", ours, echo, idsPerSecond, hundredths),
		of("ns/ID", ours, nsPerID, hundredths), of("echo's", echo, nsPerID, hundredths),
		of("bytes/ID on the wire", ours, bytesPerID, fourPlaces), of("echo's", echo, bytesPerID, fourPlaces),
		of("most live heap, KB", ourHeap, heapGrowth, thousands), of("echo's", echoHeap, heapGrowth, thousands))
	for _, r := range []row{
		{"Ranges", 1, []way{bare, ranges(tag.Name)}},
		{"Ranges", bus.DefaultParallel, []way{bare, ranges(tag.Name)}},
		{"Ranges, step 1,000", bus.DefaultParallel, []way{bare, ranges(small.Name)}},
		{"IDs, one by one", bus.DefaultParallel, []way{counted, ids}},
	} {
		must(r.ways[ours](r.callers)) // so that the generator's step has grown
		samples := l.inTurns(l.rounds, r.callers, r.ways...)
		fewer := max(1, l.rounds*2/5) // a measurement of these takes far longer
		heaps := l.inTurns(fewer, r.callers, mostLive(r.ways[echo]), mostLive(r.ways[ours]))
		t.add(r.name, r.callers, append(samples, heaps...)...)
	}
	return t
}

// bulk is a way that gets all IDs of a bulk. It says how many it got.
func (l *lab) bulk(wire *meter, get func(parallel int) (int64, error)) way {
	return func(parallel int) (sample, error) {
		bytes, begin := wire.bytes.Load(), time.Now()
		n, err := get(parallel)
		if err == nil && n != l.ids {
			err = fmt.Errorf("a bulk of %d IDs had %d", l.ids, n)
		}
		took, ids := time.Since(begin), float64(l.ids)
		return sample{
			idsPerSecond: ids / took.Seconds(),
			nsPerID:      float64(took.Nanoseconds()) / ids,
			bytesPerID:   float64(wire.bytes.Load()-bytes) / ids,
		}, err
	}
}

// echoBulk makes as many requests as a bulk does, and uses as many IDs.
func (l *lab) echoBulk(nc *nats.Conn, parallel int, use func(n int64) int64) (n int64, err error) {
	requests := (l.ids + bus.DefaultBatch - 1) / bus.DefaultBatch
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
	for failed := range answers {
		err = errors.Join(err, failed)
		n += use(min(bus.DefaultBatch, l.ids-n))
	}
	return n, err
}

// count counts to n.
func count(n int64) (counted int64) {
	for range n {
		counted++
	}
	return counted
}

// mostLive is by how much the heap grows during a bulk, garbage aside: it is
// collected all the time meanwhile. Server and generator are in it.
func mostLive(bulk way) way {
	return func(parallel int) (sample, error) {
		live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
		read := func() float64 {
			runtime.GC()
			metrics.Read(live)
			return float64(live[0].Value.Uint64())
		}
		before := read()
		most := before
		ended := make(chan error, 1)
		go func() { _, err := bulk(parallel); ended <- err }()
		for {
			most = max(most, read())
			select {
			case err := <-ended:
				return sample{heapGrowth: most - before}, err
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
