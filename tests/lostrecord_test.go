package tests

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/internal/testkit"
)

// JetStream lost the record of an installation, as it does where the disks of its
// servers were replaced too fast, and a generator of the installation still runs. A newcomer
// with an empty disk makes no second record, whatever else was lost: it waits. The
// generator that runs is not ready, and creates no tag that could begin at 1 again.
func TestRecordIsLostBesideAGenerator(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string][]string{
		"record":     {"KV_" + bus.BucketInstallation},
		"everything": {"KV_" + bus.BucketInstallation, "KV_" + bus.BucketTags, "KV_" + bus.BucketWorkers, bus.EventStream},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := newNATS(t).ClientURL()
			nc := connect(t, url)
			js := jetStream(t, nc)
			old := serve(t, t.TempDir(), "-s", url, "--tag", "order:100", "--node", "old")
			takeOne(t, client(t, url), "order")
			kv, err := js.KeyValue(t.Context(), bus.BucketInstallation)
			must(t, err)
			record, err := kv.Get(t.Context(), "installation")
			must(t, err)
			for _, stream := range lose {
				must(t, js.DeleteStream(t.Context(), stream))
			}

			fresh := serveLacking(t, "segments,snowflakes", t.TempDir(), "-s", url, "--tag", "order:100", "--node", "new")
			testkit.Eventually(t, "the newcomer to say what is lost", func() bool {
				return strings.Contains(fresh.stderr.String(), "JetStream lost the record of installation")
			})
			if text := fresh.stderr.String(); !strings.Contains(text, "old runs as part of it") {
				t.Errorf("the newcomer does not name the generator that runs: %s", text)
			}
			if _, err := js.KeyValue(t.Context(), bus.BucketInstallation); !errors.Is(err, jetstream.ErrBucketNotFound) {
				t.Errorf("a second record was made, or a bucket that is in the way of a restore: %v", err)
			}
			for i := range 10 { // by either of the two
				if msg := ask(t, nc, bus.SubjectTagsCreate, fmt.Sprintf(`{"tag":"late%d"}`, i)); msg.Header.Get("Nats-Service-Error-Code") != "503" {
					t.Errorf("a tag was created: %s", msg.Data)
				}
			}

			// The operator restores it.
			kv, err = js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: bus.BucketInstallation})
			must(t, err)
			_, err = kv.Put(t.Context(), "installation", record.Value())
			must(t, err)
			if name == "everything" { // the tags were lost too, and nobody may guess how far they were
				testkit.Eventually(t, "the tag to be added", func() bool {
					return leaf(t, "tag", "add", "order", "--step", "100", "--max-id", "5000", "-s", url).status == 0
				})
			}
			for _, s := range states(t, client(t, url), 2) {
				testkit.Eventually(t, s.Node+" is ready", func() bool {
					for _, now := range states(t, client(t, url), 2) {
						if now.Node == s.Node {
							return now.Ready
						}
					}
					return false
				})
			}
			if name == "everything" {
				for range 10 { // whichever answers
					if id := takeOne(t, client(t, url), "order"); id < 5000 {
						t.Errorf("ID %d after the tag was added at 5000", id)
					}
				}
			}
			for _, g := range []*generator{old, fresh} {
				select {
				case <-g.exited:
					t.Errorf("%s ended", g.node)
				default:
				}
			}
		})
	}
}
