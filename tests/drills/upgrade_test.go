//go:build drills

package drills

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/internal/natskit"
	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/internal/wire"
	"github.com/leafbus/leafbus/tests/chaos/programs"
	"github.com/leafbus/leafbus/tests/kit"
	"github.com/leafbus/leafbus/tests/kit/callers"
)

// nextVersion makes the next version of leaf from this one: its records have a field more and a higher format. The field
// counts the writes in that format.
var nextVersion = []programs.Edit{
	{File: "allocator/record.go", Before: "const RecordFormat = 1\n", After: "const RecordFormat = 2\n"},
	{File: "allocator/tag.go", Before: "	Format int `json:\"format,omitempty\"`\n",
		After: "	Format int `json:\"format,omitempty\"`\n	Writes int `json:\"writes,omitempty\"`\n"},
	{File: "bus/kvstore/tagrecord.go", Before: "	t.Format = max(t.Format, 1)\n",
		After: "	t.Format = max(t.Format, 1)\n	t.Writes += t.Format - 1\n"},
}

// upgrade is an installation of three generators, each of this version or of the next.
type upgrade struct {
	t       *testing.T
	url     string
	next    string // its program
	all     []*kit.Generator
	callers *callers.Callers
}

var upgraded = []string{"order", "receipt", "coupon"}

func newUpgrade(t *testing.T, args ...string) *upgrade {
	t.Helper()
	u := &upgrade{t: t, url: natskit.Start(t).ClientURL()}
	var err error
	u.next, err = programs.Build(t.Context(), t.TempDir(), nextVersion...)
	kit.Must(t, err)
	var addresses []string
	for i := range 3 {
		addresses = append(addresses, testkit.FreeAddress(t))
		u.all = append(u.all, kit.Join(t, u.url, append(args, "--node", fmt.Sprint("n", i), "--http", addresses[i])...))
		addresses[i] = "http://" + addresses[i]
	}
	kit.LeafOK(t, "tag", "add", "-s", u.url, "order")
	kit.LeafOK(t, "tag", "add", "-s", u.url, "receipt", "--order", "strict")
	kit.LeafOK(t, "tag", "add", "-s", u.url, "coupon", "--opaque=53", "--step", "1000")
	u.callers = callers.New(t, callers.Config{
		Tags: upgraded, Strict: []string{"receipt"}, Batch: 50,
		// A request that is just under way to a generator that is killed gets no answer, but no caller is refused. Those
		// over HTTP also ask generators that do not run.
		MayFail: func(c callers.Call) bool {
			var refused *bus.Error
			return c.Once && !errors.As(c.Err, &refused) || c.Kind == "HTTP" && callers.AnyFailure(c)
		},
	}).Raw(u.url).Take(u.url).Next(u.url).HTTP(addresses...)
	u.callers.More(300)
	return u
}

// replace ends generator i, with SIGTERM or kill -9, and starts it again as this version or as the next.
func (u *upgrade) replace(i int, next, kill bool) {
	u.t.Helper()
	end := (*kit.Process).Stop
	if kill {
		end = (*kit.Process).Kill
	}
	kit.Must(u.t, end(u.all[i].Process))
	u.callers.More(200) // of the others
	if next {
		u.all[i] = u.all[i].AgainAs(u.next)
	} else {
		u.all[i] = u.all[i].Again()
	}
	u.callers.More(300)
	u.t.Logf("n%d ends (kill -9: %v) and is the next version: %v; records %v", i, kill, next, u.records())
}

// record is what a record of a tag shows of its format.
type record struct{ Format, Writes int }

func (u *upgrade) records() map[string]record {
	u.t.Helper()
	js, err := jetstream.New(kit.Connect(u.t, u.url, nats.Name("upgrade")))
	kit.Must(u.t, err)
	kv, err := js.KeyValue(u.t.Context(), wire.BucketTags)
	kit.Must(u.t, err)
	all := make(map[string]record)
	for _, tag := range upgraded {
		entry, err := kv.Get(u.t.Context(), tag)
		kit.Must(u.t, err)
		var r record
		kit.Must(u.t, json.Unmarshal(entry.Value(), &r))
		all[tag] = r
	}
	return all
}

func (u *upgrade) want(format int) {
	u.t.Helper()
	for tag, r := range u.records() {
		if r.Format != format || format == 1 && r.Writes > 0 {
			u.t.Errorf("the record of %s is %+v, want format %d", tag, r, format)
		}
	}
}

// TestDrillUpgrade mixes this version and the next one under load, in both orders. As long as one generator of this
// version runs, all records stay as it knows them, and each generator can go back. When none runs any more, records get
// the new format. A generator that then goes back takes its IDs from the others.
func TestDrillUpgrade(t *testing.T) {
	for name, args := range map[string][]string{"jetstream": nil, "mysql": {"--mysql"}} {
		t.Run(name, func(t *testing.T) {
			if args != nil {
				args = append(args, kit.NewDatabase(t))
			}
			u := newUpgrade(t, args...)
			for _, kill := range []bool{false, true} {
				u.replace(0, true, kill)
				u.replace(1, true, !kill)
				u.want(1)
				u.replace(0, false, kill)
				u.replace(1, false, !kill)
				u.want(1)
			}
			for i := range u.all {
				u.replace(i, true, i == 1)
			}
			testkit.Eventually(t, "all records have the new format", func() bool {
				u.callers.More(200)
				for _, r := range u.records() {
					if r.Format != 2 || r.Writes == 0 {
						return false
					}
				}
				return true
			})
			before := u.records()
			u.replace(1, false, true)
			u.replace(2, false, false)
			u.want(2)
			for tag, r := range u.records() {
				if r.Writes < before[tag].Writes {
					t.Errorf("the record of %s is %+v and was %+v: a field is lost", tag, r, before[tag])
				}
			}
			u.replace(1, true, true)
			for kind, met := range u.callers.Stop() {
				t.Logf("%s: %v", kind, met)
			}
			audit := kit.Command(t, t.TempDir(), nil, "audit", "-s", u.url)
			audit.Path = u.next // this version cannot read the records
			kit.Finish(t, kit.Start(t, audit)).Want(t, 0)
		})
	}
}
