package faults

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/tests/kit"
)

// claimed is the bucket that says how far each tag in trend order is claimed.
func (in *installation) claimed() string {
	if in.mysql {
		return bus.BucketLedger
	}
	return bus.BucketTags
}

// key is that of a tag there.
func (in *installation) key(tag string) string {
	if in.mysql {
		return "tag." + tag
	}
	return tag
}

// claims are faults of what JetStream keeps of tags.
var claims = []scenario{
	{
		// Memory is used up first. MySQL, if the tags are there, is left alone.
		fault: "the records take no writes", in: []setup{kvAlone, mysqlAlone}, flags: []string{"--max-wait", "1s"},
		fails: unless(snowflakes), alerts: []string{"segment.refill_failed.order"},
		strike: func(in *installation) {
			in.refuseWrites(in.claimed(), true)
			what := "store"
			if in.mysql {
				what = "ledger"
			}
			in.lacks(1, what, "")
			in.refused(order, 1000, bus.StoreUnavailable, "")
			if status, body := in.get(0, "/readyz"); status != 503 || !strings.Contains(body, what) {
				in.Errorf("/readyz: %d %s", status, body)
			}
			if in.mysql {
				before := in.maxID(order)
				in.refused(order, 1000, bus.StoreUnavailable, bus.BucketLedger)
				if after := in.maxID(order); after > before+2000 {
					in.Errorf("max_id was moved by %d, and nothing could be claimed", after-before)
				}
			}
			in.refuseWrites(in.claimed(), false)
			in.ready(1)
			for _, alert := range []string{"segment.refill_failed.order", what + ".unavailable.n0"} {
				if n := len(in.events("alert." + alert)); n > 1 {
					in.Errorf("%d alerts %s in one episode", n, alert)
				}
			}
		},
	},
	{
		fault: "the records get an age limit", in: []setup{mysqlAlone}, flags: []string{"--max-wait", "1s"},
		fails: unless(snowflakes, invoice, coupon), alerts: []string{"ledger.unavailable.n0"},
		strike: func(in *installation) {
			in.change(in.claimed(), func(c *jetstream.StreamConfig) { c.MaxAge, c.Duplicates = time.Hour, 0 })
			in.lacks(1, "ledger", "an age limit")
			in.refused(order, 1000, bus.StoreUnavailable, "an age limit")
			in.change(in.claimed(), func(c *jetstream.StreamConfig) { c.MaxAge = 0 })
			in.ready(1)
		},
	},
	{
		fault: "a bucket could lose records by itself, at a start", in: []setup{kvEmpty, mysqlEmpty}, tags: none,
		strike: func(in *installation) {
			for _, bucket := range []string{in.claimed(), bus.BucketWorkers} {
				for says, set := range map[string]func(*jetstream.StreamConfig){
					"an age limit":   func(c *jetstream.StreamConfig) { c.MaxAge = time.Hour },
					"per-key TTLs":   func(c *jetstream.StreamConfig) { c.AllowMsgTTL = true },
					"memory storage": func(c *jetstream.StreamConfig) { c.Storage = jetstream.MemoryStorage },
				} {
					cfg := jetstream.StreamConfig{Name: "KV_" + bucket, Subjects: []string{"$KV." + bucket + ".>"}, MaxMsgsPerSubject: 1}
					set(&cfg)
					_, err := in.js.CreateStream(in.Context(), cfg)
					kit.Must(in.T, err)
					kit.Leaf(in.T, append([]string{"serve"}, in.arguments(0)...)...).Want(in.T, 1, "bucket "+bucket+" has "+says)
					for stream := range in.js.StreamNames(in.Context()).Name() {
						kit.Must(in.T, in.js.DeleteStream(in.Context(), stream))
					}
				}
			}
		},
	},
	{
		// A record that no generator can have written stops its tag, and no other.
		fault: "a record is damaged", in: []setup{kvAlone, mysqlAlone}, tags: []string{idle, coupon, snowflakes},
		flags: []string{"--max-wait", "1s"},
		strike: func(in *installation) {
			highest := in.take(order)
			kv := in.bucket(in.claimed())
			good, err := kv.Get(in.Context(), in.key(order))
			kit.Must(in.T, err)
			for _, damage := range []string{"garbage", `{"end":"0"}`, string(good.Value()) + "{}", ""} {
				if damage == "" { // the marker of a deletion
					kit.Must(in.T, kv.Delete(in.Context(), in.key(order)))
				} else {
					_, err = kv.PutString(in.Context(), in.key(order), damage)
					kit.Must(in.T, err)
				}
				if in.mysql || damage != "" {
					in.refused(order, 1000, bus.StoreUnavailable, "damaged")
				}
				in.more(20)
			}
			text := regexp.MustCompile(`"(end|max_id)":"\d+"`).ReplaceAll(good.Value(), fmt.Appendf(nil, `"$1":"%d"`, highest+100_000))
			_, err = kv.Put(in.Context(), in.key(order), text)
			kit.Must(in.T, err)
			in.above(order, highest+1)
		},
	},
	{
		// It is made and filled again. Nobody can purge it.
		fault: "the ledger is deleted", in: []setup{inMySQL}, fails: unless(snowflakes, coupon, invoice),
		strike: func(in *installation) {
			stream, err := in.js.Stream(in.Context(), "KV_"+bus.BucketLedger)
			kit.Must(in.T, err)
			if stream.Purge(in.Context()) == nil || stream.DeleteMsg(in.Context(), stream.CachedInfo().State.LastSeq) == nil {
				in.Error("the server purges the ledger, or deletes one of its records")
			}
			for range 2 {
				kit.Must(in.T, in.js.DeleteKeyValue(in.Context(), bus.BucketLedger))
				in.ahead(2000)
			}
			in.alerted("ledger.replaced.*")
			in.backUp()
			in.sql("UPDATE leaf_alloc SET max_id = 1") // what was filled in counts
			in.ahead(2000)
		},
	},
	{
		// Generators in memory know what was claimed.
		fault: "JetStream is set back", in: []setup{kv}, tags: []string{order, coupon, snowflakes}, fails: once,
		alerts: []string{"segment.regressed.order"},
		strike: func(in *installation) {
			putBack := in.nats.save("KV_" + in.claimed())
			in.ahead(4000)
			in.kill(2) // it comes back when the others have served from the old records
			putBack()
			in.ahead(2000)
			in.again(2)
			in.ahead(2000)
		},
	},
	{
		fault: "JetStream is set back under one generator", in: []setup{kvAlone}, fails: once,
		alerts: []string{"segment.regressed.order"},
		strike: func(in *installation) {
			putBack := in.nats.save("KV_" + in.claimed())
			in.ahead(4000)
			putBack()
			in.ahead(2000)
		},
	},
	{
		// The folder's file of marks is not set back.
		fault: "the embedded server is set back", in: []setup{embedded}, tags: []string{order, coupon, snowflakes}, fails: once,
		alerts: []string{"segment.regressed.order"},
		strike: func(in *installation) {
			store, kept := filepath.Join(in.nodes[0].Data, "nats"), in.TempDir()
			for _, end := range []func(int){in.stop, in.kill} {
				in.stop(0)
				copyFolder(in.T, store, kept)
				in.again(0)
				in.ahead(3000)
				end(0)
				copyFolder(in.T, kept, store)
				in.again(0)
				in.ahead(3000)
			}
		},
	},
	{
		// Nobody who knew better runs, and all folders are empty. One command reads the events.
		fault: "the records are set back while no generator runs", in: []setup{kv, inMySQL}, tags: none,
		strike: func(in *installation) {
			in.take(order)
			putBack := in.nats.save("KV_" + in.claimed())
			in.ready(3)
			got := in.leaf("get", order, "-n", "20000", "--ranges")
			_, last, _ := strings.Cut(got[strings.LastIndexByte(strings.TrimSpace(got), '\n')+1:], "-")
			var highest int64
			_, err := fmt.Sscan(last, &highest)
			kit.Must(in.T, err)
			in.each(in.stop, in.forgetFolder)
			putBack()
			in.join()
			if kinds := in.contradictions(); !slices.Contains(kinds, "unclaimed") {
				in.Errorf("leaf audit finds %v", kinds)
			}
			in.leaf("tag", "advance", "--all")
			if kinds := in.contradictions(); len(kinds) > 0 {
				in.Errorf("after the tags were advanced leaf audit finds %v", kinds)
			}
			if in.mysql {
				in.sql("UPDATE leaf_alloc SET max_id = 1")
			}
			in.above(order, highest+1)
		},
	},
	{
		// Who has a key in memory goes on. Nobody makes another key, or a bucket that would be in the way of a restore.
		fault: "the keys of opaque tags are lost", in: []setup{kvAlone}, tags: none,
		strike: func(in *installation) {
			in.take(coupon)
			putBack := in.nats.save("KV_" + bus.BucketKeys)
			in.ready(1)
			kit.Must(in.T, in.js.DeleteKeyValue(in.Context(), bus.BucketKeys))
			_, err := in.request(coupon, 5000)
			kit.Must(in.T, err)
			in.stop(0)
			in.again(0)
			in.refused(coupon, 1, bus.StoreUnavailable, bus.BucketKeys)
			in.take(order)
			kit.Leaf(in.T, "tag", "add", "gift", "--opaque", "-s", in.url).Want(in.T, 1, "store_unavailable", bus.BucketKeys)
			if r := kit.Leaf(in.T, "doctor", "-s", in.url); !strings.Contains(r.Stdout, "lost the bucket "+bus.BucketKeys) {
				in.Errorf("leaf doctor: %s", r.Stdout)
			}
			if _, err := in.js.KeyValue(in.Context(), bus.BucketKeys); err == nil {
				in.Error("there is a bucket again")
			}
			putBack()
			in.take(coupon)
			in.leaf("tag", "add", "gift", "--opaque")
		},
	},
	{
		// Each contradiction that is made on purpose is found and named.
		fault: "the places that say what was claimed disagree", in: []setup{kvAlone, mysqlAlone}, tags: none,
		strike: func(in *installation) {
			in.take(order)
			if in.mysql { // rows of other programs are none
				in.sql("INSERT INTO leaf_alloc (biz_tag, max_id, step) VALUES ('sql', 77, 5), ('not a tag', 5, 1), ('step0', 9, 0)")
			}
			in.leaf("tag", "add", "gone", "--max-id", "500")
			in.leaf("tag", "rm", "gone", "--yes")
			if kinds := in.contradictions(); len(kinds) > 0 {
				in.Errorf("leaf audit finds %v in peace", kinds)
			}
			kv := in.bucket(in.claimed())
			good, err := kv.Get(in.Context(), in.key(order))
			kit.Must(in.T, err)
			put := func(record string) {
				in.Helper()
				_, err := kv.PutString(in.Context(), in.key(order), record)
				kit.Must(in.T, err)
			}
			disagree := func(kind string) {
				in.Helper()
				if kinds := in.contradictions(); !slices.Contains(kinds, kind) {
					in.Errorf("leaf audit finds %v, and not %s", kinds, kind)
				}
			}
			put("garbage")
			disagree("damaged_record")
			put(strings.Replace(string(good.Value()), `"n0"`, `"n9"`, 1)) // it claimed the same
			disagree("overlap")
			put(string(good.Value()))
			in.publish("info.segment.refill.order", `{"node":"x","tag":"order","first":"900001","last":"900009","step":9,"cause":"demand"}`)
			disagree("unclaimed")
			in.publish("info.segment.refill.order", `{"node":"x","tag":"order","first":"1","last":"9","step":9,"cause":"demand"}`)
			disagree("overlap")
			in.publish("info.segment.refill.order", `garbage`)
			disagree("damaged_event")
			worker := in.held(1)["n0"]
			in.publish(fmt.Sprint("info.worker.acquired.", worker), fmt.Sprintf(
				`{"node":"x","worker":%d,"registry":"kv","from_ms":%d,"reserved_until_ms":%d}`, worker, time.Now().UnixMilli(), time.Now().Add(time.Minute).UnixMilli()))
			disagree("two_holders")
			if in.mysql {
				in.sql("UPDATE leaf_alloc SET max_id = 5 WHERE biz_tag = 'order'")
				disagree("store_behind")
			}
		},
	},
}

// contradictions are the kinds of what leaf audit finds.
func (in *installation) contradictions() (kinds []string) {
	in.Helper()
	for _, c := range in.auditWith("audit", "--json", "-s", in.url).Contradictions {
		kinds = append(kinds, c.Kind)
	}
	return kinds
}

// publish forges an event.
func (in *installation) publish(subject, body string) {
	in.Helper()
	parts := strings.SplitN(subject, ".", 4)
	msg := nats.NewMsg("leaf.events." + subject)
	for name, value := range map[string]string{
		"ce-specversion": "1.0", "ce-id": nats.NewInbox(), "ce-source": "/leaf/x", "ce-type": "leaf." + parts[1] + "." + parts[2],
		"ce-subject": parts[3], "ce-time": time.Now().UTC().Format(time.RFC3339Nano), "ce-datacontenttype": "application/json",
	} {
		msg.Header[name] = []string{value}
	}
	msg.Data = []byte(body)
	_, err := in.js.PublishMsg(in.Context(), msg)
	kit.Must(in.T, err)
}
