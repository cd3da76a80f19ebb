package main

import (
	"bytes"
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

func TestServeRefuses(t *testing.T) {
	for _, args := range [][]string{
		{"--max-batch", "0"}, {"--max-batch", "1000000001"}, {"--max-waiting", "0"}, {"--max-step", "0"},
		{"--max-wait", "0s"}, {"--max-wait", "2m"}, {"--drain-timeout", "-1s"}, {"--replicas", "-1"}, {"--replicas", "6"},
		{"--epoch", "-1"}, {"--epoch", "99999999999999"}, {"--events-max-bytes", "0"}, {"--events-max-age", "59m"}, {"--events-max-age", "876001h"}, {"--events-max-age", "30d"},
		{"--worker-id", "1024"}, {"--worker-id", "1-2"}, {"--worker-range", "9-3"}, {"--worker-id", "1", "--worker-range", "1-2"},
		{"--worker-bits", "0"}, {"--sequence-bits", "0"}, {"--worker-bits", "22"}, {"--id-bits", "64"}, {"--id-bits", "51"}, {"--id-bits", "-1"},
		{"--time-unit", "5ms"}, {"--time-unit", "0s"}, {"--time-unit", "2s"}, {"--time-unit", "1s"}, // ends after the year 9999
		{"--worker-bits", "1", "--sequence-bits", "1"}, // ends after the year 9999
		{"--worker-reserve", "999ms"}, {"--worker-reserve", "8761h"}, {"--worker-grace", "999ms"}, {"--worker-grace", "8761h"},
		{"--tag-refresh", "99ms"}, {"--tag-refresh", "25h"}, {"--mysql", "nonsense"}, {"--shared-table"}, {"--shared-table", "--mysql", ""}, {"--mysql", "u:p@tcp(127.0.0.1:1)/"},
		{"--max-clock-skew", "9ms"}, {"--max-clock-skew", "61m"}, {"--max-clock-back", "0s"}, {"--max-clock-back", "1001ms"},
		{"--max-clock-wait", "0s"}, {"--max-clock-wait", "61s"},
		{"--listen", "foo"}, {"--listen", "4222"}, {"--listen", "127.0.0.1:nats"}, {"--listen", "127.0.0.1:65536"},
		{"--log-level", "loud"}, {"--log-format", "xml"}, {"--node", "a b"}, {"--node", ".a"}, {"--node", "a..b"}, {"extra"},
	} {
		cleanEnv(t)
		var stdout, stderr bytes.Buffer
		args = append([]string{"serve", "--data-dir", t.TempDir()}, args...)
		if status := run(t.Context(), newRoot(), args, &stdout, &stderr); status != exitUsage || stdout.Len() > 0 {
			t.Errorf("%v: status %d, %s", args, status, &stderr)
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
