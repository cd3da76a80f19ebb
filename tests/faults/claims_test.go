package faults

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/internal/wire"
	"github.com/leafbus/leafbus/tests/kit"
)

// claims are faults of what JetStream keeps of tags.
var claims = []scenario{
	{
		// Memory is used up first. MySQL, if the tags are there, is left alone.
		fault: "the records take no writes", in: []setup{kvAlone, mysqlAlone}, flags: []string{"--max-wait", "1s"},
		fails: unless(snowflakes), alert: "segment.refill_failed.order",
		strike: func(in *installation) {
			in.refuseWrites(wire.BucketTags, true)
			in.lacking(1, "store", "")
			in.refused(order, 1000, bus.StoreUnavailable, "")
			if status, body := in.get(0, "/readyz"); status != 503 || !strings.Contains(body, "store") {
				in.Errorf("/readyz: %d %s", status, body)
			}
			if in.mysql {
				before := in.maxID(order)
				in.refused(order, 1000, bus.StoreUnavailable, "")
				if after := in.maxID(order); after > before+2000 {
					in.Errorf("max_id was moved by %d, and nothing could be claimed", after-before)
				}
			}
			in.oneAlert("segment.refill_failed.order")
			in.refuseWrites(wire.BucketTags, false)
			in.ready(1)
			in.change(wire.BucketTags, func(c *jetstream.StreamConfig) { c.MaxAge, c.Duplicates = time.Hour, 0 })
			in.lacking(1, "store", "an age limit")
			in.alerted("records.unavailable.n0", "")
			in.change(wire.BucketTags, func(c *jetstream.StreamConfig) { c.MaxAge = 0 })
			in.ready(1)
			in.alertEnds("records.unavailable.n0")
		},
	},
	{
		// A record that no generator can have written stops its tag, and no other.
		fault: "a record is damaged", in: []setup{kvAlone, mysqlAlone}, tags: []string{idle, coupon, snowflakes},
		flags: []string{"--max-wait", "1s"},
		strike: func(in *installation) {
			highest, good := in.take(order), in.record(order)
			for _, damage := range []string{"garbage", strings.Replace(good, `"end":"`, `"end":"-`, 1), good + "{}"} {
				in.put(order, damage)
				in.refused(order, 1000, bus.StoreUnavailable, "damaged")
				in.more(20)
			}
			kit.Must(in.T, in.bucket(wire.BucketTags).Delete(in.Context(), order))
			in.refused(order, 1000, bus.StoreUnavailable, "damaged")
			end := fmt.Sprintf(`"end":"%d"`, highest+100_000)
			in.put(order, regexp.MustCompile(`"end":"\d+"`).ReplaceAllString(good, end))
			in.above(order, highest+1)
		},
	},
	{
		// Generators remember what was claimed. One that is alone remembers all claims of strict tags, too.
		fault: "JetStream is set back", in: []setup{kvAlone, inMySQL}, fails: once, alert: "segment.regressed.order",
		strike: func(in *installation) {
			putBack := in.nats.save(wire.BucketTags)
			in.ahead(4000)
			putBack()
			in.ahead(2000)
		},
	},
	{
		// The folders are empty then. One command reads all events: the last claim is that of a newcomer, and low.
		fault: "the records are set back while no generator runs", in: []setup{kv, inMySQL}, tags: none,
		strike: func(in *installation) {
			in.take(order)
			putBack := in.nats.save(wire.BucketTags)
			in.ready(2)
			in.leaf("get", order, "-n", "20000")
			highest := in.take(order)
			in.each(in.stop, in.forgetFolder)
			putBack()
			in.join()
			if in.mysql { // the row knows more, and may forget it after the first claim
				in.above(order, highest+1)
				in.sql("UPDATE leaf_alloc SET max_id = 1")
			} else {
				in.disagree("unclaimed")
				kit.Leaf(in.T, "tag", "advance", "--all", "-s", in.url).Want(in.T, 1, "is not heard")
				in.leaf("tag", "advance", "--all", "--without", "n0,n1")
			}
			in.above(order, highest+1)
		},
	},
	{
		// A generator with the master key in memory goes on, and writes it back. After a restart nobody has it: then
		// none makes another one, or a bucket that would prevent a restore.
		fault: "the keys of opaque tags are lost", in: []setup{kvAlone}, tags: none,
		strike: func(in *installation) {
			in.take(coupon)
			putBack := in.nats.save(wire.BucketKeys)
			in.ready(1)
			lose := func() { in.Helper(); kit.Must(in.T, in.js.DeleteKeyValue(in.Context(), wire.BucketKeys)) }
			lose()
			_, err := in.request(coupon, 5000)
			kit.Must(in.T, err)
			testkit.Eventually(in.T, "the key is written back", func() bool {
				kv, err := in.js.KeyValue(in.Context(), wire.BucketKeys)
				if err == nil {
					_, err = kv.Get(in.Context(), "master")
				}
				return err == nil
			})
			in.stop(0)
			lose()
			in.again(0)
			in.refused(coupon, 1, bus.StoreUnavailable, wire.BucketKeys)
			in.take(order)
			if err := in.create(`{"tag":"gift","opaque":"53"}`); !is(err, bus.StoreUnavailable) {
				in.Errorf("an opaque tag is created: %v", err)
			}
			testkit.Eventually(in.T, "leaf doctor says it", func() bool {
				return strings.Contains(kit.Leaf(in.T, "doctor", "-s", in.url).Stdout, "JetStream lost the master key")
			})
			if _, err := in.js.KeyValue(in.Context(), wire.BucketKeys); err == nil {
				in.Error("there is a bucket again")
			}
			putBack()
			in.take(coupon)
			in.leaf("tag", "add", "gift", "--opaque")
		},
	},
}

func (in *installation) record(tag string) string {
	in.Helper()
	entry, err := in.bucket(wire.BucketTags).Get(in.Context(), tag)
	kit.Must(in.T, err)
	return string(entry.Value())
}

func (in *installation) put(tag, record string) {
	in.Helper()
	_, err := in.bucket(wire.BucketTags).PutString(in.Context(), tag, record)
	kit.Must(in.T, err)
}

// disagree demands that leaf audit finds contradictions of these kinds.
func (in *installation) disagree(kinds ...string) {
	in.Helper()
	found := in.audit()
	for _, kind := range kinds {
		if !slices.ContainsFunc(found, func(c contradiction) bool { return c.Kind == kind }) {
			in.Errorf("leaf audit finds %+v, and not %s", found, kind)
		}
	}
}
