package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nats.go/micro"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/admin"
)

const (
	cpuMicros figure = "CPU time a tag, µs"
	// A generator works on 64 administrative requests at a time and refuses one more. A request counts until shortly
	// after its answer.
	makersAtOnce = 32
	// So many of the tags in the store are used for the first time.
	keptUses = 10_000
	// A record in the bucket of the baseline is about as long as that of a tag.
	bareRecord = `{"tag":"customer.0000001","max_id":"1001","step":1000,"updated":"2026-01-01T00:00:00.123456789Z",` +
		`"last":{"first":"1","last":"1000","node":"node-0123456789","time":"2026-01-01T00:00:00.123456789Z"}}`
)

// manyNames are names of tags as a shop gives them to its customers.
func manyNames(from, n int) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprintf("customer.%07d", from+i)
	}
	return list
}

// firstUsesEmbedded makes tags in a `leaf serve` with its own NATS server, and uses each for the first
// time. The baseline is a bare compare-and-set of as many records, in a bucket of the same server.
func firstUsesEmbedded(l *lab) *table {
	c := l.spawn(l.program(), l.tempDir())
	bare := c.bucket("BARE")
	const rounds = 4 // of each way to use them, each with tags of its own
	size := max(1, l.tags/(2*rounds))
	t := newTable(whole(float64(2*rounds*size))+" tags, embedded", "at once",
		of("tags/s", 0, tagsASecond, whole), of("bare writes/s", 1, tagsASecond, whole), ratio("ratio", 0, 1, tagsASecond, hundredths),
		of("CPU of leaf, µs a tag", 0, cpuMicros, whole), of("of a bare write", 1, cpuMicros, whole))

	var lists [2 * rounds][]string
	var ours, base []sample
	for i := range lists {
		lists[i] = manyNames(i*size, size)
		ours = append(ours, c.through(lists[i], makersAtOnce, func(_ int, tag string) error { return c.create(tag) }))
		base = append(base, c.through(lists[i], makersAtOnce, func(_ int, tag string) error {
			_, err := bare.Update(l.ctx, tag, []byte(bareRecord), 0)
			return err
		}))
	}
	t.add("made over the bus", makersAtOnce, ours, base)
	revisions := make([]uint64, size)
	for i, callers := range []int{64, 1024} {
		ours, base = nil, nil
		for _, list := range lists[i*rounds : (i+1)*rounds] {
			ours = append(ours, c.through(list, callers, func(_ int, tag string) error { return ask(c.nc, bus.SubjectSegment+"."+tag, nil) }))
			c.through(list, callers, func(i int, tag string) error {
				entry, err := bare.Get(l.ctx, tag)
				if err == nil {
					revisions[i] = entry.Revision()
				}
				return err
			})
			base = append(base, c.through(list, callers, func(i int, tag string) error {
				_, err := bare.Update(l.ctx, tag, []byte(bareRecord), revisions[i])
				return err
			}))
		}
		t.add("first use", callers, ours, base)
	}
	now, most := c.memory()
	fmt.Fprintf(os.Stderr, "leaf serve after that: %.0f MB resident, at most %.0f MB; %d events dropped\n", now, most, c.dropped())
	return t
}

// through does something with each tag, with so many under way.
func (c *child) through(tags []string, callers int, do func(i int, tag string) error) sample {
	begin, used := time.Now(), c.cpu()
	check(each(c.ctx, len(tags), callers, func(i int) error { return do(i, tags[i]) }))
	return sample{
		tagsASecond: float64(len(tags)) / time.Since(begin).Seconds(),
		cpuMicros:   (c.cpu() - used) * 1e3 / float64(len(tags)),
	}
}

// create makes a tag.
func (c *child) create(tag string) error {
	return ask(c.nc, admin.SubjectTagsCreate, must(json.Marshal(admin.TagSpec{Tag: tag})))
}

// dropped is how many events did not reach the stream.
func (c *child) dropped() int64 {
	states := must(admin.NewClient(c.nc).States(c.ctx))
	var n int64
	for _, s := range states {
		n += s.Counts.EventsDropped
	}
	return n
}

// kept is what a `leaf serve` with many tags in its store costs.
type kept struct {
	*child
	t *table
}

// manyKept measures a `leaf serve` that has many tags in its store: memory, start, list, dashboard.
func manyKept(l *lab) *table {
	leaf, dir := l.program(), l.folder
	if dir == "" {
		dir = l.tempDir()
	}
	dir = must(filepath.Abs(dir))
	check(os.MkdirAll(dir, 0o700))
	k := kept{l.spawn(leaf, dir), newTable(whole(float64(l.tags))+" tags in the store, embedded", "", of("figure", 0, amount, whole))}
	if k.fill(l.tags) {
		k.grown("after the making")
	}
	check(k.stop())

	k.child = l.spawn(leaf, dir)
	k.add("start until ready, ms", k.ready)
	k.timed("first ID after that, ms", func() error { return ask(k.nc, segment(tagNamed(manyNames(l.tags/2, 1)[0], 1)), nil) })
	client := admin.NewClient(k.nc)
	var page admin.TagsPage
	list := func() (err error) {
		ctx, cancel := context.WithTimeout(l.ctx, time.Minute)
		defer cancel()
		page, err = client.Tags(ctx, admin.PageRequest{After: page.Next})
		return err
	}
	k.timed("first page of 1,000 after that, ms", list)
	k.grown("after that")
	k.timed("second page of 1,000, ms", list)
	k.over("dashboard, first page", "/dashboard/tags")
	k.over("dashboard, search that finds 10", "/dashboard/tags?q=mer.000010")
	k.over("metrics", "/metrics")
	k.timed("a page of what is in memory, ms, 500 of them for other generators", func() error {
		_, err := client.Buffers(l.ctx, admin.PageRequest{})
		return err
	})
	k.grown("after that")
	some := manyNames(rand.IntN(max(1, l.tags-keptUses)), min(l.tags, keptUses))
	uses := k.through(some, tagsAtOnce,
		func(_ int, tag string) error { return ask(k.nc, bus.SubjectSegment+"."+tag, nil) })
	k.add("use of "+whole(float64(len(some)))+" of them, 64 at once, tags/s", uses[tagsASecond])
	k.add("… CPU of leaf, µs a tag", uses[cpuMicros])
	k.grown("after that")
	listing := l.command(leaf, dir, "tag", "list", "--json", "-s", k.nats, "--timeout", "60s")
	k.timed("leaf tag list --json, ms", listing.Run)
	if usage, ok := listing.ProcessState.SysUsage().(*syscall.Rusage); ok {
		k.add("leaf tag list --json, its memory, MB", float64(usage.Maxrss)/1024)
	}
	k.grown("after that")
	return k.t
}

// add adds a figure.
func (k kept) add(name string, value float64) { k.t.add(name, 1, []sample{{amount: value}}) }

// timed adds how long it takes; NaN if it fails.
func (k kept) timed(name string, do func() error) {
	begin := time.Now()
	err := do()
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: after %v: %v\n", name, time.Since(begin), err)
		k.add(name, math.NaN())
		return
	}
	k.add(name, since(begin))
}

// over adds how long a page over HTTP takes, and its size.
func (k kept) over(name, path string) {
	var size int
	k.timed(name+", ms", func() (err error) { size, err = k.get(path); return err })
	k.add(name+", KB", float64(size)/1024)
}

// grown adds the memory of the process.
func (k kept) grown(when string) {
	now, most := k.memory()
	k.add("memory of leaf serve "+when+", MB resident", now)
	k.add("… at most, MB", most)
}

// get reads a page over HTTP, and returns its size.
func (c *child) get(path string) (int, error) {
	resp, err := http.Get(c.http + path)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && (resp.StatusCode != http.StatusOK || !bytes.Contains(body, []byte(`"problem":""`)) && path != "/metrics") {
		err = fmt.Errorf("%s: %s %.300s", path, resp.Status, body)
	}
	return len(body), err
}

// fill makes the tags that the store lacks, and reports whether there were any.
func (c *child) fill(n int) bool {
	js := must(jetstream.New(c.nc))
	info := must(must(js.Stream(c.ctx, "KV_"+bus.BucketTags)).Info(c.ctx))
	from := int(info.State.NumSubjects)
	if from >= n {
		return false
	}
	from = max(0, from-1000) // those that were under way when an earlier run ended
	var done atomic.Int64
	begin := time.Now()
	progress := time.NewTicker(10 * time.Second)
	defer progress.Stop()
	ended := make(chan struct{})
	defer close(ended)
	go func() {
		for {
			select {
			case <-ended:
				return
			case <-progress.C:
				fmt.Fprintf(os.Stderr, "%d of %d tags are made, %.0f a second\n", int64(from)+done.Load(), n,
					float64(done.Load())/time.Since(begin).Seconds())
			}
		}
	}()
	list := manyNames(from, n-from)
	check(each(c.ctx, len(list), makersAtOnce, func(i int) error {
		msg, err := c.nc.Request(admin.SubjectTagsCreate, must(json.Marshal(admin.TagSpec{Tag: list[i]})), requestTimeout)
		if err == nil && msg.Header.Get(micro.ErrorCodeHeader) != "" && msg.Header.Get(micro.ErrorCodeHeader) != "409" {
			err = errors.New(msg.Header.Get(micro.ErrorHeader))
		}
		done.Add(1)
		return err
	}))
	return true
}
