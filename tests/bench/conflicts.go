package main

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus/generator"
	"github.com/leafbus/leafbus/tests/kit"
)

const (
	leastShare figure = "least share"
	farRate    figure = "far answers a second"
	farP50     figure = "far p50"
	farLongest figure = "far longest"
	farRefused figure = "far refused"

	farDelay   = 100 * time.Millisecond
	farCallers = 4
)

// conflicts measures how generators of one strict tag share it. Each has as many callers, which ask it as its own HTTP
// face does: NATS would bring a request to any of them.
func conflicts(l *lab) *table {
	const ours, one = 0, 1
	t := newTable("one strict tag, 64 callers", "generators",
		of("requests/s", ours, perSecond, whole), ratio("of one generator's", ours, one, perSecond, hundredths),
		of("writes/s", ours, writesPerSecond, whole), of("conflicts per 100 writes", ours, conflictsPerCent, tenths),
		of("passed on, %", ours, passedPerCent, whole), of("least share, 1 is fair", ours, leastShare, hundredths),
		of("p50 µs", ours, p50, thousands), of("p99 µs", ours, p99, thousands), of("longest µs", ours, longest, thousands))
	alone := l.crowded(1)
	for _, n := range []int{1, 3, 8} {
		found := l.inTurns(l.rounds, n, l.crowded(n), alone)
		t.add("near JetStream", n, found...)
	}
	return t
}

// crowded is a way in which 64 callers take IDs from so many generators.
func (l *lab) crowded(generators int) way {
	const callers = 64
	tag, claims := strictNamed("bench.strict"), new(claimCounts)
	s := l.site()
	var all []*generator.Generator
	for range generators {
		all = append(all, s.generate([]allocator.Tag{tag}, claims.observe))
	}
	answers := make([]atomic.Int64, generators)
	way := claims.counted(func(int) (sample, error) {
		return l.load(callers, 0, func(i int) error {
			_, err := all[i%generators].Take(l.ctx, tag.Name, 1)
			answers[i%generators].Add(1)
			return err
		})
	})
	must(way(callers)) // they have to hear each other first
	return func(int) (sample, error) {
		for i := range answers {
			answers[i].Store(0)
		}
		s, err := way(callers)
		least := answers[0].Load()
		for i := range answers {
			least = min(least, answers[i].Load())
		}
		s[leastShare] = float64(least) * float64(generators) / s[made]
		return s, err
	}
}

// unnamed are records that do not say which generator came first, so requests are not passed on to it.
type unnamed struct{ allocator.Records }

// Load implements [allocator.Records].
func (u unnamed) Load(ctx context.Context, tag string) (allocator.Stored, error) {
	s, err := u.Records.Load(ctx, tag)
	s.Last.Run = ""
	return s, err
}

// Watch implements [allocator.Records].
func (u unnamed) Watch(ctx context.Context, f func(allocator.Update)) error {
	return u.Records.Watch(ctx, func(up allocator.Update) {
		up.Last.Run = ""
		f(up)
	})
}

// farAway measures a generator that hears from JetStream 100 ms late, beside a busy one that is near: with and without
// passing on.
func farAway(l *lab) *table {
	tag, claims := strictNamed("bench.strict"), new(claimCounts)
	s := l.site()
	near := s.generate([]allocator.Tag{tag}, claims.observe)
	far := func(options ...func(*generator.Config)) *generator.Generator {
		between := must(kit.StartLink(strings.TrimPrefix(s.server.ClientURL(), "nats://")))
		l.atEnd(func() error { between.Close(); return nil })
		g := s.generateOn(must(nats.Connect("nats://"+between.Addr())), []allocator.Tag{tag}, append(options, claims.observe)...)
		between.Delay(farDelay)
		return g
	}
	beside := func(g *generator.Generator) way {
		return claims.counted(func(callers int) (found sample, err error) {
			var refused atomic.Int64
			var away sample
			var awayErr error
			var wg sync.WaitGroup
			wg.Go(func() {
				away, awayErr = l.load(farCallers, 0, func(int) error {
					_, err := g.Take(l.ctx, tag.Name, 1)
					if err != nil {
						refused.Add(1)
					}
					return nil
				})
			})
			found, err = l.load(callers, 0, func(int) error { _, err := near.Take(l.ctx, tag.Name, 1); return err })
			wg.Wait()
			found[farRate] = away[perSecond] - float64(refused.Load())/(away[made]/away[perSecond])
			found[farP50], found[farLongest], found[farRefused] = away[p50], away[longest], float64(refused.Load())
			return found, errors.Join(err, awayErr)
		})
	}
	const ours = 0
	t := newTable("one strict tag, a generator 100 ms away beside a busy one", "callers of the near one",
		of("near answers/s", ours, perSecond, whole), of("far answers/s, 4 callers", ours, farRate, tenths), sumOf("far refused", ours, farRefused, whole),
		of("far p50 ms", ours, farP50, millions), of("far longest ms", ours, farLongest, millions),
		of("conflicts per 100 writes", ours, conflictsPerCent, hundredths))
	l.measure(t, row{"passes its requests on", 60, []way{beside(far())}})
	return l.measure(t, row{"does not", 60, []way{beside(far(func(c *generator.Config) { c.Records = unnamed{c.Records} }))}})
}
