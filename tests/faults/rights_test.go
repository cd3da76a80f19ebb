package faults

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nkeys"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/admin"
	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/internal/wire"
	"github.com/leafbus/leafbus/tests/kit"
)

// natsProcess is a nats-server with a configuration of deploy/nats, whose paths and keys are filled in.
type natsProcess struct {
	*testing.T
	cmd      *exec.Cmd
	dir, url string
	keys     map[string]string // the public key for each placeholder
}

// deployed starts one, or a generator with it. Further pairs of texts are replaced in its configuration.
func deployed(t *testing.T, embedded bool, replace ...string) *natsProcess {
	t.Helper()
	s := &natsProcess{T: t, dir: t.TempDir(), keys: make(map[string]string)}
	address := testkit.FreeAddress(t)
	s.url = "tls://" + address
	certify(t, s.dir)
	replace = append(replace, "/etc/leafbus/server.crt", s.dir+"/cert",
		"/etc/leafbus/secrets/server.key", s.dir+"/key", "/var/lib/nats", s.dir, "0.0.0.0:4222", address, "a:4222", address)
	files, err := filepath.Glob("../../deploy/nats/*.*")
	kit.Must(t, err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		kit.Must(t, err)
		filled := regexp.MustCompile(`KEY_OF_\w+`).ReplaceAllStringFunc(string(text), s.newKey)
		put(t, s.dir, filepath.Base(file), strings.NewReplacer(replace...).Replace(filled))
	}
	program := kit.Build(t, "github.com/nats-io/nats-server/v2") // the version that leaf embeds
	s.cmd = exec.Command(program, "-c", s.dir+"/nats.conf")
	if embedded {
		s.cmd = kit.Command(t, s.dir, nil, "serve", "--nats-config", s.dir+"/nats.conf", "--nkey", s.dir+"/generator.seed",
			"--http", "", "--tag", order)
	}
	process := kit.Start(t, s.cmd)
	testkit.Eventually(t, "a server that accepts connections", func() bool {
		nc, err := nats.Connect(s.url, s.options("generator")...)
		if err == nil {
			nc.Close()
		}
		return err == nil
	})
	if embedded {
		testkit.Eventually(t, "the address of TLS", func() bool {
			return strings.HasPrefix(process.Stdout(), "leaf ready nats="+s.url+" ")
		})
	}
	return s
}

// newKey makes the key of a user, keeps its seed in a file, and returns its public key.
func (s *natsProcess) newKey(placeholder string) string {
	if key := s.keys[placeholder]; key != "" {
		return key
	}
	pair, err := nkeys.CreateUser()
	kit.Must(s.T, err)
	seed, err1 := pair.Seed()
	public, err2 := pair.PublicKey()
	kit.Must(s.T, errors.Join(err1, err2))
	put(s.T, s.dir, strings.ToLower(strings.TrimPrefix(placeholder, "KEY_OF_"))+".seed", string(seed))
	s.keys[placeholder] = public
	return public
}

func (s *natsProcess) options(user string) []nats.Option {
	seed, err := nats.NkeyOptionFromSeed(filepath.Join(s.dir, user+".seed"))
	kit.Must(s.T, err)
	return []nats.Option{seed, nats.RootCAs(filepath.Join(s.dir, "cert")), nats.CustomInboxPrefix(inboxOf(user))}
}

func inboxOf(user string) string {
	if user == "generator" {
		return "leaf.internal.inbox"
	}
	return "_INBOX." + user
}

func (s *natsProcess) as(user string) *nats.Conn {
	return kit.Connect(s.T, s.url, s.options(user)...)
}

// args are the flags of a leaf command of a user.
func (s *natsProcess) args(user string, args ...string) []string {
	args = append(args, "-s", s.url, "--nkey", filepath.Join(s.dir, user+".seed"), "--tlsca", filepath.Join(s.dir, "cert"))
	if user != "test" && user != "generator" {
		args = append(args, "--inbox-prefix", inboxOf(user))
	}
	return args
}

// generators starts n of them as a user, and waits until all give all IDs.
func (s *natsProcess) generators(user string, n int, args ...string) (list []*kit.Generator) {
	s.Helper()
	for range n {
		list = append(list, kit.Begin(s.T, s.TempDir(), append(s.args(user), args...)...))
	}
	nc := s.as(user)
	testkit.Eventually(s.T, "generators that are ready", func() bool {
		states := kit.States(nc)
		return len(states) >= n && !slices.ContainsFunc(states, func(g kit.State) bool { return !g.Ready })
	})
	return list
}

// Each user of deploy/nats can do its work.
func TestUsersCanDoTheirWork(t *testing.T) {
	t.Parallel()
	s := deployed(t, false)
	s.generators("generator", 2, "--tag", order, "--tag", "shop.cart", "--tag", "other")
	kit.LeafOK(t, s.args("operator", "tag", "add", "gift", "--opaque")...)
	specs := filepath.Join(t.TempDir(), "tags.yaml")
	kit.Must(t, os.WriteFile(specs, []byte("tags:\n- tag: old\n  max_id: 5000\n"), 0o600))
	backup := filepath.Join(t.TempDir(), "backup")
	for _, row := range []struct{ user, commands string }{
		{"generator", "backup " + backup + ", restore " + backup + ""},
		{"shop", "get order -n 100000, get shop.cart, snowflake -n 5000"},
		{"importer", "tag add new --max-id 100, tag set new --max-id 200, tag apply -f " + specs + ", tag list, tag show new"},
		{"operator", "tag rm new --yes, tag advance --all, tag pause old, nodes, workers, trace order 7, " +
			"audit, bench other --requests 5, get gift"},
		{"watch", "tag list, tag show order, workers"},
	} {
		for command := range strings.SplitSeq(row.commands, ", ") {
			// An audit wants the events, which come a moment later. A machine that stood still gives a 503: try again.
			testkit.Eventually(t, row.user+": leaf "+command, func() bool {
				r := kit.Leaf(t, s.args(row.user, strings.Fields(command)...)...)
				if r.Status != 0 && !strings.HasPrefix(command, "audit") && !strings.Contains(r.Stderr, "(503 ") {
					t.Fatalf("%s: leaf %s: %s", row.user, command, r.Stderr)
				}
				return r.Status == 0
			})
		}
	}
	for user, flag := range map[string]string{"operator": "--durable=pager", "watch": "--live"} {
		follower := kit.Start(t, kit.Command(t, t.TempDir(), nil, s.args(user, "events", "--json", flag)...))
		testkit.Eventually(t, user+" sees an event", func() bool {
			kit.LeafOK(t, s.args("operator", "tag", "set", "old", "--description", time.Now().String())...)
			return strings.Contains(follower.Stdout(), "tag.updated")
		})
	}
}

// A user of deploy/nats can do nothing but its work.
func TestUsersMayDoNoMore(t *testing.T) {
	t.Parallel()
	s := deployed(t, false)
	keys := []string{"$JS.API.STREAM.MSG.GET.KV_LEAF_KEYS", "$JS.API.CONSUMER.CREATE.KV_LEAF_KEYS", "$KV.LEAF_KEYS.x",
		"$JS.API.DIRECT.GET.KV_LEAF_KEYS", "$JS.API.STREAM.CREATE.x", "$JS.API.STREAM.SNAPSHOT.KV_LEAF_KEYS"}
	state := append(keys, "$KV.LEAF_TAGS.x", "$KV.LEAF.x", "$JS.API.STREAM.DELETE.LEAF_EVENTS", "leaf.internal.record",
		"leaf.internal.take.x", "leaf.events.alert.x.y.z", "_INBOX.shop.x", "_INBOX.other.x", "$SYS.REQ.SERVER.PING", "x")
	commands := append(state, "leaf.admin.tags.delete", "leaf.admin.tags.reveal", "leaf.admin.tags.advance",
		"leaf.admin.workers.release", "leaf.admin.nodes.forget", "$SRV.STATS.leaf", "$JS.API.INFO", "$JS.ACK.x",
		"leaf.segment.x", "leaf.segment.orders")
	create := []string{"leaf.admin.tags.create", "leaf.admin.tags.update"}
	ids := []string{"leaf.segment.order", "leaf.segment.shop.cart", "leaf.snowflake", "leaf.decode"}
	mayNot := map[string][]string{
		"generator": {"$KV.other.x", "_INBOX.shop.x", "$SYS.REQ.SERVER.PING", "x"},
		"shop":      slices.Concat(commands, create, []string{"leaf.admin.tags.list", "leaf.segment.shop"}),
		"importer":  slices.Concat(commands, ids),
		"operator":  state,
		"watch":     slices.Concat(commands, create, ids),
	}
	for user, subjects := range mayNot {
		nc := s.as(user)
		for _, subject := range subjects {
			if !refuses(t, nc, func() error { return nc.Publish(subject, nil) }) {
				t.Errorf("%s may publish to %s", user, subject)
			}
		}
		subjects := []string{"_INBOX.>", "_INBOX.other.>", "_INBOX.*", ">", "*.>", "$JS.>", "$KV.>", "$SYS.>"}
		for other := range maps.Keys(mayNot) {
			if other != user {
				subjects = append(subjects, "_INBOX."+other+".>")
			}
		}
		if user != "generator" {
			subjects = append(subjects, "leaf.>", "leaf.internal.>", "leaf.internal.inbox.>", "leaf.segment.order",
				"leaf.admin.>", "$SRV.>")
		}
		if user != "generator" && user != "operator" && user != "watch" {
			subjects = append(subjects, "leaf.events.>", "leaf.events.alert.>")
		}
		for _, subject := range subjects {
			if !refuses(t, nc, func() error { _, err := nc.SubscribeSync(subject); return err }) {
				t.Errorf("%s may subscribe to %s", user, subject)
			}
		}
	}
	kit.Leaf(t, s.args("shop", "get", "other", "--timeout", "1s")...).Want(t, 1, "leaf.segment.other", "permissions violation")
	kit.Leaf(t, s.args("watch", "get", order, "--timeout", "1s")...).Want(t, 1, "leaf.segment.order", "permissions violation")
	kit.Leaf(t, s.args("importer", "tag", "rm", order, "--yes")...).Want(t, 1, "may not publish to leaf.admin.tags.delete")
}

// refuses reports whether NATS denies what try does.
func refuses(t *testing.T, nc *nats.Conn, try func() error) bool {
	t.Helper()
	before := nc.LastError()
	kit.Must(t, errors.Join(try(), nc.Flush()))
	return nc.LastError() != before && errors.Is(nc.LastError(), nats.ErrPermissionViolation)
}

// A command cuts one user off while all others go on, and gives it back. The certificate is replaced meanwhile. If the
// server could not read the new file, or cannot be asked to, the file stays.
func TestOneUserIsCutOff(t *testing.T) {
	t.Parallel()
	for name, embedded := range map[string]bool{"nats-server": false, "the server in a generator": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cutOff(t, deployed(t, embedded), map[bool]string{false: "nats-server", true: "leaf"}[embedded])
		})
	}
}

func cutOff(t *testing.T, s *natsProcess, program string) {
	generators := s.generators("generator", 2, "--tag", order)
	bin := t.TempDir() // with the program that runs here, under its name
	kit.Must(t, os.Symlink(s.cmd.Path, filepath.Join(bin, program)))
	// Without its own RELOAD, nats-server would find the processes of other tests too.
	reload := fmt.Sprintf("kill -HUP %d", s.cmd.Process.Pid)
	try := func(reload string, args ...string) ([]byte, error) {
		cmd := exec.Command("sh", append([]string{"user.sh"}, args...)...)
		cmd.Dir, cmd.Env = s.dir, append(os.Environ(), "RELOAD="+reload, "PATH="+bin+":"+os.Getenv("PATH"))
		return cmd.CombinedOutput()
	}
	run := func(args ...string) {
		t.Helper()
		if out, err := try(reload, args...); err != nil {
			t.Fatalf("user.sh %v: %v: %s", args, err, out)
		}
	}
	patient := append(s.options("shop"), nats.IgnoreAuthErrorAbort())
	shop, other := kit.Connect(t, s.url, patient...), s.as("operator")
	take := func(nc *nats.Conn) error {
		_, err := bus.NewClient(nc).Take(t.Context(), order, 1)
		return err
	}
	kit.Must(t, take(shop))
	users := filepath.Join(s.dir, "users.conf")
	good, err := os.ReadFile(users)
	kit.Must(t, err)
	for _, row := range []struct{ file, reload string }{{string(good), "false"}, {string(good) + "x {", reload}} {
		put(t, s.dir, "users.conf", row.file)
		out, err := try(row.reload, "off", "shop")
		if is, _ := os.ReadFile(users); err == nil || string(is) != row.file {
			t.Errorf("after %s the file is another one: %v: %s", row.reload, err, out)
		}
	}
	put(t, s.dir, "users.conf", string(good))
	certify(t, s.dir)
	run("off", "shop")
	testkit.Eventually(t, "shop is cut off", func() bool { return !shop.IsConnected() })
	if _, err := nats.Connect(s.url, s.options("shop")...); !errors.Is(err, nats.ErrAuthorization) {
		t.Errorf("shop connects: %v", err)
	}
	for range 20 {
		kit.Must(t, take(other))
	}
	run("on", "shop")
	testkit.Eventually(t, "shop is back", shop.IsConnected)
	kit.Must(t, take(shop))
	if n := other.Stats().Reconnects; n != 0 {
		t.Errorf("the operator connected again %d times", n)
	}
	for _, g := range generators {
		if strings.Contains(g.Stderr(), "connected to NATS again") {
			t.Errorf("a generator was disconnected: %s", g.Stderr())
		}
	}
}

// Two installations share a NATS, each in an account. A third account gets IDs of a tag that it imports, from both
// generators of the one installation, and reaches nothing else.
func TestAccounts(t *testing.T) {
	t.Parallel()
	s := deployed(t, false, "include users.conf", "include accounts.conf")
	generators := s.generators("generator", 2, "--tag", "shop.cart", "--tag", order)
	s.generators("test", 1, "--tag", "shop.cart")
	shop, production := s.as("shop"), s.as("generator")
	for _, subject := range []string{"leaf.segment.order", "leaf.admin.tags.list", "$SRV.PING.leaf", "leaf.internal.record"} {
		if _, err := shop.Request(subject, nil, kit.Patience); !errors.Is(err, nats.ErrNoResponders) {
			t.Errorf("a request on %s from another account: %v", subject, err)
		}
	}
	var mu sync.Mutex
	var seen []string
	_, err := shop.Subscribe("leaf.>", func(m *nats.Msg) { mu.Lock(); defer mu.Unlock(); seen = append(seen, m.Subject) })
	kit.Must(t, err)
	requests := func() (sum, least int64) {
		states := kit.States(production)
		for _, state := range states {
			sum += state.Counts.Requests
		}
		return sum, min(states[0].Counts.Requests, states[1].Counts.Requests)
	}
	before, _ := requests()
	client := bus.NewClient(shop)
	for range 100 {
		_, err := client.Take(t.Context(), "shop.cart", 1)
		kit.Must(t, err)
	}
	// Without a queue group each request would come twice. On a slow machine a client sends a few of them again.
	if after, least := requests(); after-before < 100 || after-before > 150 || least == 0 {
		t.Errorf("100 requests came to generators %d times, and %d times to one of them", after-before, least)
	}
	kit.Must(t, generators[0].Kill())
	for range 100 {
		_, err := client.Take(t.Context(), "shop.cart", 1)
		kit.Must(t, err)
	}
	mu.Lock()
	defer mu.Unlock()
	for _, subject := range seen {
		if subject != "leaf.segment.shop.cart" { // its own requests
			t.Errorf("another account sees %s", subject)
		}
	}
	if id := kit.LeafOK(t, s.args("test", "get", "shop.cart")...); id != "1\n" {
		t.Errorf("the first ID of the other installation is %s", id)
	}
}

// No client sees the key of an opaque tag, whichever inboxes it may read: not when generators read it, nor in a backup.
func TestNoInboxShowsKeys(t *testing.T) {
	t.Parallel()
	s := newNATS(t, `authorization { users: [ { user: all, password: p } ] }`)
	as := func() *nats.Conn { return kit.Connect(t, s.ClientURL(), nats.UserInfo("all", "p")) }
	join := func() { kit.Join(t, s.ClientURL(), "--user", "all", "--password", "p", "--tag", order) }
	var mu sync.Mutex
	var seen []*nats.Msg
	spy, all := as(), as()
	_, err := spy.Subscribe("_INBOX.>", func(m *nats.Msg) { mu.Lock(); defer mu.Unlock(); seen = append(seen, m) })
	kit.Must(t, errors.Join(err, spy.Flush()))
	js, err := jetstream.New(as())
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
	keys, err := js.KeyValue(t.Context(), wire.BucketKeys)
	kit.Must(t, err)
	key, err := keys.Get(t.Context(), "master")
	kit.Must(t, err)
	if len(found) < 20 {
		t.Fatalf("the spy saw %d messages", len(found))
	}
	var record struct{ Key []byte }
	kit.Must(t, json.Unmarshal(key.Value(), &record))
	encoded := []byte(base64.StdEncoding.EncodeToString(record.Key))
	whole := []byte(base64.StdEncoding.EncodeToString(key.Value())) // as JetStream answers a request for one message
	for _, m := range found {
		if len(record.Key) < 16 || bytes.Contains(m.Data, record.Key) || bytes.Contains(m.Data, encoded) ||
			bytes.Contains(m.Data, whole) {
			t.Fatalf("%s shows the key", m.Subject)
		}
	}
}
