package kvstore

import (
	"testing"

	"github.com/leafbus/leafbus/internal/natskit"
	"github.com/leafbus/leafbus/internal/wire"
)

// Nobody can remove what was claimed, or a key, without a trace. JetStream denies it. Nor can anybody write over a key.
func TestRemovalsAreDenied(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	mustCreateOpaque(t, openRecordsOf(t, newConfig(t, s)), opaqueTag(t, "coupon", "53"))
	js := newConfig(t, s).JS
	for bucket, key := range map[string]string{wire.BucketKeys: masterKey, wire.BucketTags: "coupon"} {
		kv, err := js.KeyValue(t.Context(), bucket)
		if err != nil {
			t.Fatal(err)
		}
		before, err := kv.Get(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		stream, err := js.Stream(t.Context(), streamOf(bucket))
		if err != nil {
			t.Fatal(err)
		}
		attacks := map[string]func() error{
			"purge":   func() error { return kv.Purge(t.Context(), key) },
			"message": func() error { return stream.DeleteMsg(t.Context(), before.Revision()) },
			"erase":   func() error { return stream.SecureDeleteMsg(t.Context(), before.Revision()) },
			"stream":  func() error { return stream.Purge(t.Context()) },
			"edit": func() error {
				cfg := stream.CachedInfo().Config
				cfg.DenyDelete, cfg.DenyPurge = false, false
				_, err := js.UpdateStream(t.Context(), cfg)
				return err
			},
		}
		if bucket == wire.BucketKeys {
			attacks["put"] = func() error { _, err := kv.Put(t.Context(), key, []byte("x")); return err }
			attacks["update"] = func() error {
				_, err := kv.Update(t.Context(), key, []byte("x"), before.Revision())
				return err
			}
			attacks["delete"] = func() error { return kv.Delete(t.Context(), key) }
		}
		for what, attack := range attacks {
			if err := attack(); err == nil {
				t.Errorf("%s: %s is allowed", bucket, what)
			}
		}
		if after, err := kv.Get(t.Context(), key); err != nil || string(after.Value()) != string(before.Value()) {
			t.Errorf("%s: the record has changed: %v", bucket, err)
		}
		if stream.CachedInfo().Config.AllowDirect {
			t.Errorf("%s: a replica that lags behind may answer a read", bucket)
		}
	}
}
