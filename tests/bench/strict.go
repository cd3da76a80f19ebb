package main

import (
	"errors"
	"sync/atomic"

	"github.com/go-sql-driver/mysql"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/generator"
)

const (
	writesPerSecond  figure = "writes a second"
	requestsPerWrite figure = "requests per write"
	conflictsPerCent figure = "conflicts per 100 writes"
	passedPerCent    figure = "requests passed on, %"

	recordSize = 220 // bytes of the record of a strict tag
)

// strictNamed is a new strict tag.
func strictNamed(name string) allocator.Tag {
	return allocator.Tag{Name: name, MaxID: 1, Order: allocator.Strict}
}

// claimCounts counts the claims of strict tags, of all generators that have it as their observer. The other methods do
// nothing.
type claimCounts struct {
	writes, conflicts, passedOn atomic.Int64
}

// Claimed implements [generator.Observer].
func (c *claimCounts) Claimed(e allocator.Claimed) {
	c.conflicts.Add(int64(e.Conflicts))
	if e.PassedTo != "" { // the other generator counts the write
		c.passedOn.Add(int64(e.Requests))
		return
	}
	c.writes.Add(1)
}

func (c *claimCounts) Answered(generator.Answer)     {}
func (c *claimCounts) Refilled(allocator.Refilled)   {}
func (c *claimCounts) Regressed(allocator.Regressed) {}
func (c *claimCounts) EventPublished(string)         {}

// observe makes a generator count its claims.
func (c *claimCounts) observe(config *generator.Config) { config.Observer = c }

// counted adds to the samples of a way what the claims were meanwhile.
func (c *claimCounts) counted(w way) way {
	return func(callers int) (sample, error) {
		writes, conflicts, passedOn := c.writes.Load(), c.conflicts.Load(), c.passedOn.Load()
		s, err := w(callers)
		if err != nil {
			return nil, err
		}
		n := float64(c.writes.Load() - writes)
		seconds := s[made] / s[perSecond]
		s[writesPerSecond] = n / seconds
		s[requestsPerWrite] = s[made] / n
		s[passedPerCent] = 100 * float64(c.passedOn.Load()-passedOn) / s[made]
		s[conflictsPerCent] = 100 * float64(c.conflicts.Load()-conflicts) / n
		return s, nil
	}
}

// strictTags compares requests for IDs of a strict tag with requests for IDs of one in trend order, and to the echo.
// All generators run in this process. The column least p50 has, for one caller, a write followed by an echo: no strict
// order is possible without the write. For more callers, who share writes, it has the echo.
func strictTags(l *lab) *table {
	trend, strict := tagNamed("bench", allocator.DefaultStep), strictNamed("bench.strict")
	type place struct {
		nc     *nats.Conn
		claims *claimCounts
	}
	start := func(generators int) (*site, place) {
		s, claims := l.site(), new(claimCounts)
		for range generators {
			s.generate([]allocator.Tag{trend, strict}, claims.observe)
		}
		return s, place{s.dial(), claims}
	}
	site, one := start(1)
	site.echo()
	_, three := start(3)
	of1 := func(p place) []way {
		return []way{l.requests(p.nc, segment(trend), 1), p.claims.counted(l.requests(p.nc, segment(strict), 1))}
	}
	bare := l.writeAndEcho(site, one.nc)

	const echo, base, ours, oneOurs, write = 0, 1, 2, 3, 4
	t := newTable("strict tag, over NATS, 1 ID a request", "callers",
		of("requests/s", ours, perSecond, whole), of("echo's", echo, perSecond, whole), ratio("ratio", ours, echo, perSecond, hundredths),
		of("trend's", base, perSecond, whole), ratio("ratio", ours, base, perSecond, hundredths),
		ratio("of one generator's", ours, oneOurs, perSecond, hundredths),
		of("p50 µs", ours, p50, thousands), of("p99 µs", ours, p99, thousands),
		of("echo's p50", echo, p50, thousands), of("p99", echo, p99, thousands),
		of("least p50", write, p50, thousands), ratio("ratio", ours, write, p50, hundredths),
		of("writes/s", ours, writesPerSecond, whole), of("requests per write", ours, requestsPerWrite, tenths),
		of("conflicts per 100 writes", ours, conflictsPerCent, tenths), of("passed on, %", ours, passedPerCent, whole))
	for _, callers := range []int{1, 64, 1024} {
		ways := append(append([]way{l.echoes(one.nc)}, of1(one)...), of1(three)...)
		if callers == 1 {
			ways = append(ways, bare)
		}
		for _, w := range ways {
			must(w(callers))
		}
		found := l.inTurns(l.rounds, callers, ways...)
		none := found[0]
		if callers == 1 {
			none = found[5]
		}
		t.add("generators: 1", callers, found[0], found[1], found[2], found[2], none)
		t.add("generators: 3", callers, found[0], found[3], found[4], found[2], none)
	}
	return t
}

// writeAndEcho is a way whose only caller writes a record of usual size by compare-and-set, from within the server's
// process as a generator does, and then asks the echo.
func (l *lab) writeAndEcho(s *site, nc *nats.Conn) way {
	state := s.state()
	kv := must(state.JS.CreateKeyValue(l.ctx, jetstream.KeyValueConfig{Bucket: "bench", Storage: jetstream.FileStorage}))
	record := make([]byte, recordSize)
	revision := must(kv.Create(l.ctx, "bench.strict", record))
	return l.calls(func(int) (err error) {
		if revision, err = kv.Update(l.ctx, "bench.strict", record, revision); err != nil {
			return err
		}
		return ask(nc, echoSubject, []byte(echoBody))
	})
}

// strictNext compares the client's Next of a strict tag, where callers share requests, with that of a tag in trend
// order.
func strictNext(l *lab) *table {
	trend, strict := tagNamed("bench", allocator.DefaultStep), strictNamed("bench.strict")
	s := l.site()
	s.generate([]allocator.Tag{trend, strict})
	nc := s.dial()
	client := bus.NewClient(nc)
	own := l.contexts(1024)
	next := func(tag allocator.Tag) way {
		return l.shared(nc, func(i int) error { _, err := client.Next(own[i], tag.Name); return err })
	}
	ways := []way{next(trend), next(strict)}
	const base, ours = 0, 1
	return l.measure(newTable("strict tag, the client's Next", "callers",
		of("IDs/s", ours, perSecond, whole), of("trend's", base, perSecond, whole), ratio("ratio", ours, base, perSecond, hundredths),
		of("IDs per request", ours, idsPerRequest, tenths), of("trend's", base, idsPerRequest, tenths),
		of("p50 µs", ours, p50, thousands), of("p99 µs", ours, p99, thousands), of("trend's p99", base, p99, thousands)),
		row{"Next", 1, ways}, row{"Next", 64, ways}, row{"Next", 1024, ways})
}

// strictMySQL compares requests for IDs of a strict tag with the two statements by which a database hands out
// increasing numbers, one each request: Flickr's ticket server, and an UPDATE that returns the new value.
func strictMySQL(l *lab) *table {
	d := l.database()
	for _, statement := range []string{
		"CREATE TABLE tickets (id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY, stub CHAR(1) NOT NULL UNIQUE)",
		"CREATE TABLE counters (name VARCHAR(64) PRIMARY KEY, value BIGINT NOT NULL)",
		"INSERT INTO counters VALUES ('bench', 1)",
	} {
		must(d.plain.ExecContext(l.ctx, statement))
	}
	statement := func(text string) way {
		return l.calls(func(int) error {
			result, err := d.plain.ExecContext(l.ctx, text)
			for deadlocked(err) { // the REPLACE of several callers
				result, err = d.plain.ExecContext(l.ctx, text)
			}
			if err == nil {
				_, err = result.LastInsertId()
			}
			return err
		})
	}
	strict := strictNamed("bench.strict")
	s := l.site()
	s.generate([]allocator.Tag{strict})
	ways := []way{
		statement("REPLACE INTO tickets (stub) VALUES ('a')"),
		statement("UPDATE counters SET value = LAST_INSERT_ID(value + 1) WHERE name = 'bench'"),
		l.requests(s.dial(), segment(strict), 1),
	}
	const flickr, update, ours = 0, 1, 2
	return l.measure(newTable("strict tag, beside a statement a request on MariaDB", "callers",
		of("requests/s", ours, perSecond, whole),
		of("REPLACE's", flickr, perSecond, whole), ratio("ratio", ours, flickr, perSecond, tenths),
		of("UPDATE's", update, perSecond, whole), ratio("ratio", ours, update, perSecond, tenths),
		of("p50 µs", ours, p50, thousands), of("REPLACE's", flickr, p50, thousands), of("UPDATE's", update, p50, thousands),
		of("p99 µs", ours, p99, thousands), of("REPLACE's", flickr, p99, thousands), of("UPDATE's", update, p99, thousands)),
		row{"1 ID a request", 1, ways}, row{"1 ID a request", 64, ways}, row{"1 ID a request", 1024, ways})
}

func deadlocked(err error) bool {
	failed, ok := errors.AsType[*mysql.MySQLError](err)
	return ok && failed.Number == 1213
}
