package faults

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/admin"
	"github.com/leafbus/leafbus/tests/kit"
)

// withRights runs a NATS server with the users of the pages. tests/cli/permissions.txtar has them, and tries what they
// may do.
func withRights(t *testing.T) (as func(user string) *nats.Conn, join func()) {
	t.Helper()
	script, err := txtar.ParseFile("../cli/permissions.txtar")
	kit.Must(t, err)
	s := newNATS(t, string(script.Files[0].Data))
	as = func(user string) *nats.Conn {
		return kit.Connect(t, s.ClientURL(), nats.UserInfo(user, "p"), nats.CustomInboxPrefix("_INBOX."+user))
	}
	join = func() { kit.Join(t, s.ClientURL(), "--user", "generator", "--password", "p", "--tag", order) }
	return as, join
}

// A user can do nothing but what the pages say.
func TestUsersMayDoNoMore(t *testing.T) {
	t.Parallel()
	as, _ := withRights(t)
	change := []string{"$JS.API.STREAM.MSG.GET.KV_LEAF_KEYS", "$JS.API.CONSUMER.CREATE.KV_LEAF_KEYS", "$KV.LEAF_KEYS.x",
		"$KV.LEAF_TAGS.x", "leaf.internal.tag", "leaf.events.alert.x.y.z", "$JS.API.STREAM.DELETE.LEAF_EVENTS"}
	caller := append(slices.Clone(change), "leaf.admin.tags.delete", "leaf.admin.tags.reveal", "$SRV.STATS.leaf", "$JS.API.INFO")
	follower := append(slices.Clone(change), "leaf.segment.x", "leaf.admin.tags.delete")
	with := func(further ...string) []string { return slices.Concat(follower, further) }
	for user, denied := range map[string][]string{
		"takes": caller, "changes": change, "auditor": with("leaf.admin.tags.reveal", "$JS.ACK.x"), "follows": follower,
		"live": with("$JS.API.CONSUMER.CREATE.LEAF_EVENTS.x"), "waits": with("$JS.API.STREAM.MSG.GET.LEAF_EVENTS"),
		"generator": {"$KV.other.x", "_INBOX.takes.x", "$SYS.REQ.SERVER.PING", "other"},
	} {
		nc := as(user)
		for _, subject := range denied {
			if !refuses(t, nc, func() error { return nc.Publish(subject, nil) }) {
				t.Errorf("%s may publish to %s", user, subject)
			}
		}
		subjects := []string{"_INBOX.>", "_INBOX.other.>", ">", "$JS.>", "$KV.>"}
		if user != "generator" {
			subjects = append(subjects, "leaf.>", "leaf.internal.>", "leaf.internal.inbox.>", "leaf.segment.x", "leaf.admin.>",
				"$SRV.>")
		}
		for _, subject := range subjects {
			if !refuses(t, nc, func() error { _, err := nc.SubscribeSync(subject); return err }) {
				t.Errorf("%s may subscribe to %s", user, subject)
			}
		}
	}
}

// refuses reports whether NATS denies what try does.
func refuses(t *testing.T, nc *nats.Conn, try func() error) bool {
	t.Helper()
	before := nc.LastError()
	kit.Must(t, errors.Join(try(), nc.Flush()))
	return nc.LastError() != before && errors.Is(nc.LastError(), nats.ErrPermissionViolation)
}

// No client sees the key of an opaque tag, whichever inboxes it may read: not when generators read it, nor in a backup.
func TestNoInboxShowsKeys(t *testing.T) {
	t.Parallel()
	as, join := withRights(t)
	var mu sync.Mutex
	var seen []*nats.Msg
	spy, all := as("all"), as("all")
	_, err := spy.Subscribe("_INBOX.>", func(m *nats.Msg) { mu.Lock(); defer mu.Unlock(); seen = append(seen, m) })
	kit.Must(t, errors.Join(err, spy.Flush()))
	js, err := jetstream.New(as("all"))
	kit.Must(t, err)
	join()
	client := bus.NewClient(all)
	_, err = admin.NewClient(all).CreateTag(t.Context(), admin.TagSpec{Tag: "gift", Opaque: "53"})
	kit.Must(t, err)
	join()
	for range 20 { // of both generators
		_, err := client.Take(t.Context(), "gift", 3000)
		kit.Must(t, err)
	}
	backup := filepath.Join(t.TempDir(), "backup")
	kit.LeafOK(t, "backup", backup, "-s", all.ConnectedUrl(), "--user", "all", "--password", "p")
	kit.LeafOK(t, "restore", backup, "-s", all.ConnectedUrl(), "--user", "all", "--password", "p")
	kit.Must(t, spy.Flush())
	mu.Lock()
	found := seen
	mu.Unlock()
	keys, err := js.KeyValue(t.Context(), bus.BucketKeys)
	kit.Must(t, err)
	key, err := keys.Get(t.Context(), "master")
	kit.Must(t, err)
	if len(found) < 20 {
		t.Fatalf("the spy saw %d messages", len(found))
	}
	var record struct{ Key []byte }
	kit.Must(t, json.Unmarshal(key.Value(), &record))
	encoded := []byte(base64.StdEncoding.EncodeToString(record.Key))
	for _, m := range found {
		if len(record.Key) < 16 || bytes.Contains(m.Data, record.Key) || bytes.Contains(m.Data, encoded) {
			t.Fatalf("%s shows the key", m.Subject)
		}
	}
}
