package main

import (
	"encoding/json"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/bus/admin"
	"github.com/leafbus/leafbus/internal/load"
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
	s.generate(nil, nil)
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

	return l.measure(whole(float64(l.tags))+" tags, beside bare writes",
		row{"created over NATS", makersAtOnce, written, created},
		row{"first use", 64, written, used},
		row{"first use", 1024, written, used},
	)
}

// through is a way that does something with each tag, after a preparation that is not measured.
func (l *lab) through(tags *[]string, prepare func(), do func(tag string) error) way {
	return func(callers int) (sample, error) {
		prepare()
		var next atomic.Int64
		return l.run(load.Load{Callers: callers, Duration: time.Hour, Calls: int64(len(*tags))}, func(int) error {
			return do((*tags)[next.Add(1)-1])
		})
	}
}
