package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/bus/admin"
	"github.com/leafbus/leafbus/internal/wire"
)

const (
	// makersAtOnce is below the 64 administrative requests that a generator works on at a time.
	makersAtOnce = 32
	// bareRecord is about as long as the record of a tag.
	bareRecord = `{"tag":"customer.0000001","max_id":"1001","step":1000,"updated":"2026-01-01T00:00:00.123456789Z",` +
		`"last":{"first":"1","last":"1000","node":"node-0123456789","time":"2026-01-01T00:00:00.123456789Z"}}`
)

// manyTags makes tags over NATS, new ones in each round, and uses each for the first time. The baseline is a bare
// compare-and-set of as many records, in a bucket of the same server.
func manyTags(l *lab) *table {
	s := l.site()
	s.generate(nil)
	nc := s.dial()
	bare := must(must(jetstream.New(nc)).CreateKeyValue(l.ctx,
		jetstream.KeyValueConfig{Bucket: "BARE", Storage: jetstream.FileStorage}))
	var rounds atomic.Int64
	var tags []string
	fresh := func() {
		round := rounds.Add(1)
		tags = make([]string, l.tags)
		for i := range tags {
			tags[i] = fmt.Sprintf("customer.%d.%07d", round, i)
		}
	}
	written := l.through(&tags, fresh, func(tag string) error {
		_, err := bare.Create(l.ctx, tag, []byte(bareRecord))
		return err
	})
	created := l.through(&tags, fresh, func(tag string) error {
		return ask(nc, admin.SubjectTagsCreate, must(json.Marshal(admin.TagSpec{Tag: tag})))
	})
	used := l.through(&tags, func() { must(created(makersAtOnce)) }, func(tag string) error {
		return ask(nc, wire.SubjectSegment+"."+tag, nil)
	})

	const base, ours = 0, 1
	return l.measure(newTable(whole(float64(l.tags))+" tags", "at once",
		of("tags/s", ours, tagsASecond, whole), of("bare writes/s", base, tagsASecond, whole),
		ratio("ratio", ours, base, tagsASecond, hundredths)),
		row{"created over NATS", makersAtOnce, []way{written, created}},
		row{"first use", 64, []way{written, used}},
		row{"first use", 1024, []way{written, used}},
	)
}

// through is a way that does something with each tag, after a preparation that is not measured.
func (l *lab) through(tags *[]string, prepare func(), do func(tag string) error) way {
	return func(callers int) (sample, error) {
		prepare()
		begin, failed := time.Now(), make([]error, callers)
		var next atomic.Int64
		var all sync.WaitGroup
		for c := range failed {
			all.Go(func() {
				for i := int(next.Add(1)) - 1; i < len(*tags) && failed[c] == nil && l.ctx.Err() == nil; i = int(next.Add(1)) - 1 {
					failed[c] = do((*tags)[i])
				}
			})
		}
		all.Wait()
		took := time.Since(begin)
		return sample{tagsASecond: float64(len(*tags)) / took.Seconds()}, errors.Join(append(failed, context.Cause(l.ctx))...)
	}
}
