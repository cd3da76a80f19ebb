package main

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus/generator"
	"github.com/leafbus/leafbus/snowflake"
	"github.com/leafbus/leafbus/snowflake/zookeeper"
)

func TestParseTags(t *testing.T) {
	tags, err := parseTags([]string{"order", "shop.coupon:50", "a/b=c-d"}, 500)
	want := []allocator.Tag{
		{Name: "order", MaxID: 1, Step: 500}, // the default step is above --max-step
		{Name: "shop.coupon", MaxID: 1, Step: 50},
		{Name: "a/b=c-d", MaxID: 1, Step: 500},
	}
	if err != nil || len(tags) != len(want) {
		t.Fatalf("%+v, %v", tags, err)
	}
	for i := range want {
		if tags[i] != want[i] {
			t.Errorf("%+v, want %+v", tags[i], want[i])
		}
	}
	for _, bad := range []string{"", "a b", ":5", "a:", "a:0", "a:-1", "a:501", "a:x", "a:1:2", "*", "a..b"} {
		_, err := parseTags([]string{bad}, 500)
		if _, usage := errors.AsType[*usageError](err); !usage {
			t.Errorf("--tag %q: %v, want a usage error", bad, err)
		}
	}
}

// The bounds themselves are allowed.
func TestServeAccepts(t *testing.T) {
	least := serveFlags{
		eventsMaxBytes: 1 << 20, eventsMaxAge: time.Hour,
		config: generator.Config{
			MaxBatch: 1, MaxWaiting: 1, MaxStep: 1, MaxWait: time.Millisecond, Outlast: time.Second,
			Snowflake: snowflake.Config{
				Reserve: time.Second, Grace: time.Second,
				MaxClockSkew: 10 * time.Millisecond, MaxBack: time.Millisecond, MaxClockWait: time.Millisecond,
			},
		},
		worker: workerFlags{layoutFlags: layoutFlags{idBits: 63, workerBits: 10, sequenceBits: 12, sequence: new(pflag.Flag), unit: time.Millisecond}, datacenterBits: defaultDatacenterBits},
		mysql:  mysqlFlags{refresh: leastRefresh}, zookeeper: zookeeperFlags{name: zookeeper.DefaultName},
	}
	most := least
	most.mysql.refresh = mostRefresh
	most.eventsMaxBytes, most.eventsMaxAge = 1<<50, 876000*time.Hour
	most.config.Outlast = allocator.LimitOutlast
	longest := &most.config.Snowflake
	longest.Reserve, longest.Grace = 365*24*time.Hour, 365*24*time.Hour
	longest.MaxClockSkew, longest.MaxBack, longest.MaxClockWait = time.Hour, time.Second, time.Minute
	most.worker.workerBits = 21 // the time has 30 bits left
	for _, f := range []serveFlags{least, most} {
		if err := f.check(); err != nil {
			t.Errorf("%v in %+v", err, f)
		}
	}
}

// A generator that ends by itself has as much time for its stop as after a signal: its context ends
// too, with the cause.
func TestTogetherEndsItsContext(t *testing.T) {
	ctx, stop := context.WithCancelCause(t.Context())
	failure := errors.New("only a restart helps")
	err := together(ctx, stop, func(context.Context) error { return failure }, func(context.Context) error {
		<-ctx.Done()
		return nil
	})
	if !errors.Is(err, failure) || !errors.Is(context.Cause(ctx), failure) {
		t.Errorf("it ended with %v, and its context with %v", err, context.Cause(ctx))
	}
}
