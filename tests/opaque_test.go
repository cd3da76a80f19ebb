package tests

import (
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/internal/testkit"
)

// opaqueLoad is callers of the opaque tag coupon, who meet kills, deletions and restores.
func opaqueLoad(t *testing.T, urls ...string) *load {
	t.Helper()
	return startLoad(t, loadConfig{tag: "coupon", callers: 4, maxBatch: 300, patience: patience / 80, mayGiveUp: true, expected: anyRefusal}, urls...)
}

// IDs of an opaque tag come once, through kills, a deletion and a creation of the same name, from three generators. An audit finds each of
// them claimed, by its number.
func TestOpaqueThroughKills(t *testing.T) {
	t.Parallel()
	for name, args := range tagStores {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := newNATS(t).ClientURL()
			generators, again := strictGenerators(t, []string{url, url, url}, args(t)...)
			leafOK(t, "tag", "add", "coupon", "--opaque=53", "--step", "100", "-s", url)
			l := opaqueLoad(t, url, url)
			for i := range generators {
				l.more(300)
				generators[i].kill()
				l.more(300)
				again(i)
			}
			leafOK(t, "tag", "rm", "coupon", "--yes", "-s", url)
			leaf(t, "tag", "add", "coupon", "-s", url).want(t, 1, "409 conflict", "an opaque tag with the domain 53")
			leaf(t, "tag", "add", "coupon", "--opaque=63", "-s", url).want(t, 1, "409 conflict")
			leaf(t, "tag", "add", "coupon", "--order", "strict", "-s", url).want(t, 1, "409 conflict")
			leafOK(t, "tag", "add", "coupon", "--opaque=53", "--step", "100", "-s", url)
			l.more(300)
			l.stop()
			l.agrees(url)
			id := takeOne(t, client(t, url), "coupon")
			revealed := strings.Fields(leafOK(t, "tag", "reveal", "coupon", fmt.Sprint(id), "-s", url))
			number, err := strconv.ParseInt(revealed[len(revealed)-1], 10, 64)
			must(t, err)
			if number < 1 || number > 10*l.ids.Load() {
				t.Errorf("%d has the number %d, after %d IDs", id, number, l.ids.Load())
			}
			for _, fact := range []string{"claimed by n", fmt.Sprintf("number %d", number)} {
				if trace := leafOK(t, "trace", "coupon", fmt.Sprint(id), "-s", url); !strings.Contains(strings.Join(strings.Fields(trace), " "), fact) {
					t.Errorf("the trace does not have %q: %s", fact, trace)
				}
			}
		})
	}
}

// The bucket of the tags is restored from an older copy under running generators, and the bucket of the keys is not. No ID repeats.
func TestOpaqueTagRestored(t *testing.T) {
	t.Parallel()
	server := newNATS(t)
	url := server.ClientURL()
	for _, node := range []string{"one", "two"} {
		serve(t, t.TempDir(), "-s", url, "--max-step", "2000", "--node", node)
	}
	leafOK(t, "tag", "add", "coupon", "--opaque=d12", "-s", url)
	nc := connect(t, url)
	l := opaqueLoad(t, url, url)
	l.more(500)
	backup := filepath.Join(t.TempDir(), "backup")
	server.Close()
	copyFolder(t, server.folderOf(bus.BucketTags), backup)
	server.start()
	states(t, bus.NewClient(nc), 2)
	l.more(1000)
	server.Close()
	copyFolder(t, backup, server.folderOf(bus.BucketTags))
	server.start()
	l.more(1000)
	l.stop()
	noticed(t, nc, "coupon")
	l.agrees(url)
}

// The keys are lost. A generator that has one in memory goes on. One that starts refuses the tag. Nobody makes another key, or a bucket that
// would be in the way of a restore, and leaf doctor says what to do. Other tags are served, and made. With the bucket all is well again.
func TestOpaqueKeysLost(t *testing.T) {
	t.Parallel()
	server := newNATS(t)
	url := server.ClientURL()
	g := serve(t, t.TempDir(), "-s", url, "--tag", "order")
	nc := connect(t, url)
	doctor(t, "-s", url).want(t, "keys", "ok", "opaque tags: 0")
	leafOK(t, "tag", "add", "coupon", "--opaque", "-s", url)
	takeOne(t, client(t, url), "coupon")
	server.Close()
	backup := filepath.Join(t.TempDir(), "backup")
	copyFolder(t, server.folderOf(bus.BucketKeys), backup)
	server.start()
	states(t, bus.NewClient(nc), 1)
	doctor(t, "-s", url).want(t, "keys", "ok", "opaque tags: 1, each has its key")
	must(t, jetStream(t, nc).DeleteKeyValue(t.Context(), bus.BucketKeys))
	granted(t, ask(t, nc, "leaf.segment.coupon", "5000"))
	lost := func() {
		t.Helper()
		doctor(t, "-s", url).want(t, "keys", "problem", "JetStream lost the bucket LEAF_KEYS", "coupon", "restore the bucket: docs/security.md")
		leaf(t, "tag", "add", "gift", "--opaque", "-s", url).want(t, 1, "503 store_unavailable", "LEAF_KEYS", "restore it from a backup")
		if _, err := jetStream(t, nc).KeyValue(t.Context(), bus.BucketKeys); !errors.Is(err, jetstream.ErrBucketNotFound) {
			t.Errorf("there is a bucket again: %v", err)
		}
	}
	lost()

	g.stop()
	serve(t, g.dir, "-s", url)
	for range 3 {
		refused(t, ask(t, nc, "leaf.segment.coupon", ""), 503, bus.StoreUnavailable)
	}
	if text := string(ask(t, nc, "leaf.segment.coupon", "").Data); !strings.Contains(text, "LEAF_KEYS") {
		t.Error(text)
	}
	granted(t, ask(t, nc, "leaf.segment.order", ""))
	leafOK(t, "tag", "add", "late", "-s", url)
	leaf(t, "tag", "add", "coupon", "--opaque", "-s", url).want(t, 1, "409 conflict", "LEAF_KEYS")
	lost()
	leafOK(t, "tag", "rm", "coupon", "--yes", "-s", url)
	leaf(t, "tag", "add", "coupon", "--opaque", "-s", url).want(t, 1, "409 conflict", "LEAF_KEYS")
	testkit.Eventually(t, "the tag is unknown", func() bool {
		return refusal(t, ask(t, nc, "leaf.segment.coupon", "")).Reason == string(bus.UnknownTag)
	})
	lost()

	server.Close()
	copyFolder(t, backup, server.folderOf(bus.BucketKeys))
	server.start()
	states(t, bus.NewClient(nc), 1)
	leafOK(t, "tag", "add", "coupon", "--opaque", "-s", url)
	leafOK(t, "tag", "add", "gift", "--opaque", "-s", url)
	granted(t, ask(t, nc, "leaf.segment.coupon", ""))
	doctor(t, "-s", url).want(t, "keys", "ok", "opaque tags: 2, each has its key")
}

// The bucket of the keys is restored from before a tag was created. leaf doctor names the tag. A user that may not ask for the bucket learns
// only that.
func TestOpaqueKeyOfALaterTagLost(t *testing.T) {
	t.Parallel()
	conf := filepath.Join(t.TempDir(), "nats.conf")
	writeFile(t, conf, `jetstream: {}, accounts { A: { jetstream: {}, users: [
		{ user: all, password: p }
		{ user: some, password: p, permissions: { publish: { deny: [ "$JS.API.STREAM.INFO.KV_LEAF_KEYS" ] } } }
	] } }`)
	server := newNATSFrom(t, conf)
	all := []string{"-s", server.ClientURL(), "--user", "all", "--password", "p"}
	with := func(args ...string) []string { return append(args, all...) }
	serve(t, t.TempDir(), all...)
	leafOK(t, with("tag", "add", "coupon", "--opaque")...)
	nc := connect(t, server.ClientURL(), nats.UserInfo("all", "p"))
	js := jetStream(t, nc)
	kv, err := js.KeyValue(t.Context(), bus.BucketKeys)
	must(t, err)
	key, err := kv.Get(t.Context(), "coupon")
	must(t, err)
	for _, tag := range []string{"gift", "voucher"} {
		leafOK(t, with("tag", "add", tag, "--opaque")...)
	}
	must(t, js.DeleteKeyValue(t.Context(), bus.BucketKeys))
	kv, err = js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: bus.BucketKeys})
	must(t, err)
	_, err = kv.Put(t.Context(), "coupon", key.Value())
	must(t, err)
	doctor(t, all...).want(t, "keys", "problem", "opaque tags without a key in the bucket LEAF_KEYS (2): gift; voucher", "docs/security.md")
	doctor(t, "-s", server.ClientURL(), "--user", "some", "--password", "p", "--timeout", "1s").want(t, "keys", "warning", "it is not known whether each opaque tag has its key", "as the user of the generators")
}
