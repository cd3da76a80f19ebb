package tests

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/internal/testkit"
)

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestReadyLine(t *testing.T) {
	t.Parallel()
	first := embed(t, "--tag", "order")
	if first.mode != "embedded" || first.http != "off" || first.folder != filepath.Join(first.dir, "leaf-data") {
		t.Errorf("ready line %q", first.stdout.String())
	}
	// When it is printed, requests are answered.
	nc := connect(t, first.url)
	if got := string(ask(t, nc, "leaf.segment.order", "").Data); got != "1" {
		t.Errorf("the first ID is %q", got)
	}
	if want := "dir=" + first.folder; !strings.Contains(first.stderr.String(), "empty store") || !strings.Contains(first.stderr.String(), want) {
		t.Errorf("stderr does not say that a store was created with %s: %s", want, first.stderr.String())
	}

	folder := filepath.Join(t.TempDir(), "elsewhere")
	second := serve(t, t.TempDir(), "-s", first.url, "--data-dir", folder, "--node", "second_1")
	if second.mode != "joined" || second.node != "second_1" || second.url != first.url || second.folder != folder {
		t.Errorf("ready line %q", second.stdout.String())
	}
	second.stop()
	first.stop()

	// The node's name is made once; the store is not empty the second time.
	again := first.again(t)
	if again.node != first.node || again.url != first.url {
		t.Errorf("after a restart: %q, before: %q", again.stdout.String(), first.stdout.String())
	}
	if text := again.stderr.String(); strings.Contains(text, "empty store") {
		t.Errorf("after a restart stderr says: %s", text)
	}
	again.stop()
	if lines := strings.Count(again.stdout.String(), "\n"); lines != 1 {
		t.Errorf("stdout has %d lines: %s", lines, again.stdout.String())
	}
}

// The error of a second generator on one address shows a command that works.
func TestAddressInUse(t *testing.T) {
	t.Parallel()
	first := embed(t, "--tag", "order")
	address := strings.TrimPrefix(first.url, "nats://")
	r := runLeaf(t, command(t, first.dir, nil, []string{"serve", "--listen", address, "--data-dir", "another", "--http", ""}))
	r.want(t, 1, address, "already in use")
	if r.stdout != "" {
		t.Errorf("stdout says %q", r.stdout)
	}
	var advice []string
	for line := range strings.Lines(r.stderr) {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "leaf serve") {
			advice = append(advice, line)
		}
	}
	if len(advice) != 2 || !strings.Contains(advice[0], "-s "+first.url) {
		t.Fatalf("stderr advises %q: %s", advice, r.stderr)
	}
	for i, line := range advice {
		dir := t.TempDir()
		shell := exec.Command("sh", "-c", "exec "+line)
		like := command(t, dir, nil, nil)
		shell.Dir, shell.Env = dir, append(like.Env, "PATH="+leafBin)
		g := ready(t, dir, start(t, shell))
		if joined := g.url == first.url; joined != (i == 0) {
			t.Errorf("%q is at %s", line, g.url)
		}
		g.stop()
	}
}

func TestRefusedStarts(t *testing.T) {
	t.Parallel()
	busy := embed(t)
	locked := filepath.Join(t.TempDir(), "file")
	writeFile(t, locked, "")
	users := filepath.Join(t.TempDir(), "users.conf")
	writeFile(t, users, `authorization { users: [{user: alice, password: secret}] }`)
	none := freeAddress(t)

	for name, c := range map[string]struct {
		args   []string
		status int
		stderr []string
	}{
		"data folder in use":         {[]string{"--listen", "127.0.0.1:0", "--data-dir", busy.folder}, 1, []string{busy.folder, "in use", "--data-dir"}},
		"data folder that is a file": {[]string{"--listen", "127.0.0.1:0", "--data-dir", locked}, 1, []string{locked}},
		"server and listen":          {[]string{"-s", busy.url, "--listen", "127.0.0.1:0"}, 2, []string{"--server", "--listen"}},
		"server and nats-config":     {[]string{"-s", busy.url, "--nats-config", users}, 2, []string{"--nats-config"}},
		"open to the network":        {[]string{"--listen", "0.0.0.0:0"}, 2, []string{"--user", "--password"}},
		"no credentials":             {[]string{"--listen", "127.0.0.1:0", "--nats-config", users}, 1, []string{"refused access", "--user"}},
		"wrong credentials":          {[]string{"--listen", "127.0.0.1:0", "--nats-config", users, "--user", "alice", "--password", "hunter2"}, 1, []string{"refused access", "--user"}},
		"no NATS there":              {[]string{"-s", none}, 3, []string{none, "leaf serve"}},
		"bad tag":                    {[]string{"--listen", "127.0.0.1:0", "--tag", "a b"}, 2, []string{"--tag", "a b"}},
		"bad step":                   {[]string{"--listen", "127.0.0.1:0", "--tag", "order:0"}, 2, []string{"--tag", "order:0"}},
		"bad node":                   {[]string{"--listen", "127.0.0.1:0", "--node", "a..b"}, 2, []string{"--node"}},
		"bad number":                 {[]string{"--listen", "127.0.0.1:0", "--max-batch", "0"}, 2, []string{"--max-batch"}},
		"missing NATS configuration": {[]string{"--nats-config", filepath.Join(t.TempDir(), "none.conf")}, 1, []string{"none.conf"}},
		"unknown flag":               {[]string{"--nope"}, 2, []string{"--nope"}},
		"argument":                   {[]string{"order"}, 2, []string{"order"}},
		"user without password":      {[]string{"--listen", "127.0.0.1:0", "--user", "alice"}, 1, []string{"--password"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := start(t, command(t, t.TempDir(), nil, append([]string{"serve", "--http", ""}, c.args...)))
			// At once, and not after the ten seconds that NATS gives a greeting.
			status := p.wait(9 * time.Second)
			result{status, p.stdout.String(), p.stderr.String()}.want(t, c.status, c.stderr...)
			if p.stdout.String() != "" {
				t.Errorf("stdout says %q", p.stdout.String())
			}
			if strings.Contains(p.stderr.String(), "hunter2") {
				t.Errorf("stderr shows the password: %s", p.stderr.String())
			}
		})
	}
}

// A start that fails because something around it is not as it should be leaves no data folder.
func TestFailedStartLeavesNoFolder(t *testing.T) {
	t.Parallel()
	busy := embed(t)
	taken := strings.TrimPrefix(busy.url, "nats://")
	guarded := serve(t, t.TempDir(), "--listen", "127.0.0.1:0", "--user", "alice", "--password", "secret")
	conf := filepath.Join(t.TempDir(), "nats.conf")
	writeFile(t, conf, "listen: \""+taken+"\"")
	for name, c := range map[string]struct {
		args   []string
		stderr []string
	}{
		"address of HTTP":              {[]string{"--listen", "127.0.0.1:0", "--http", taken}, []string{"--http", "already in use", "leaf serve"}},
		"address of HTTP, joined":      {[]string{"-s", busy.url, "--http", taken}, []string{"--http", "already in use"}},
		"address of NATS":              {[]string{"--listen", taken, "--http", ""}, []string{taken, "already in use", "leaf serve -s"}},
		"address of NATS, in its file": {[]string{"--nats-config", conf, "--http", ""}, []string{taken, "change the address in " + conf}},
		"both addresses":               {[]string{"--listen", taken, "--http", taken}, []string{"leaf serve -s"}},
		"certificate of HTTP":          {[]string{"--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--http-tlscert", conf, "--http-tlskey", conf}, []string{"--http-tlscert"}},
		"no NATS there":                {[]string{"-s", freeAddress(t), "--http", ""}, []string{"no NATS server at"}},
		"no password":                  {[]string{"-s", guarded.url, "--http", ""}, []string{"refused access"}},
		"open to the network":          {[]string{"--listen", "0.0.0.0:0", "--http", ""}, []string{"without authentication"}},
		"no file for NATS":             {[]string{"--nats-config", filepath.Join(t.TempDir(), "none.conf"), "--http", ""}, []string{"none.conf"}},
		"no password in a file":        {[]string{"--listen", "0.0.0.0:0", "--user", "leaf", "--password-file", "none", "--http", ""}, []string{"--password-file"}},
		"no database's name":           {[]string{"--listen", "127.0.0.1:0", "--mysql", "u:p@tcp(127.0.0.1:1)/", "--http", ""}, []string{"--mysql"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			p := start(t, command(t, dir, nil, append([]string{"serve"}, c.args...)))
			if status := p.wait(patience); status == 0 || status < 0 {
				t.Errorf("exit status %d", status)
			}
			for _, want := range c.stderr {
				if !strings.Contains(p.stderr.String(), want) {
					t.Errorf("stderr does not say %q: %s", want, p.stderr.String())
				}
			}
			if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
				t.Errorf("it left %v, %v", left, err)
			}
		})
	}
}

// freeAddress is the URL of a NATS server that is not there.
func freeAddress(t *testing.T) string {
	t.Helper()
	return "nats://" + testkit.FreeAddress(t)
}

// With --user and --password on an embedded server, nobody comes in without.
func TestPasswordOfTheEmbeddedServer(t *testing.T) {
	t.Parallel()
	credentials := []string{"--user", "alice", "--password", "hunter2"}
	g := serve(t, t.TempDir(), append([]string{"--listen", "0.0.0.0:0", "--tag", "order"}, credentials...)...)
	for name, opts := range map[string][]nats.Option{
		"nobody":         nil,
		"wrong password": {nats.UserInfo("alice", "hunter")},
		"token":          {nats.Token("hunter2")},
	} {
		if nc, err := nats.Connect(g.url, opts...); !errors.Is(err, nats.ErrAuthorization) {
			t.Errorf("%s: %v, want to be refused", name, err)
			if nc != nil {
				nc.Close()
			}
		}
	}
	leaf(t, "get", "order", "-s", g.url).want(t, 1, "refused access", "--password")
	if got := leafOK(t, append([]string{"get", "order", "-s", g.url}, credentials...)...); got != "1\n" {
		t.Errorf("the owner of the password gets %q", got)
	}
	join := serve(t, t.TempDir(), append([]string{"-s", g.url}, credentials...)...)
	join.stop()
	g.stop()
	if text := g.stderr.String() + g.stdout.String(); strings.Contains(text, "hunter2") {
		t.Errorf("the password is in %s", text)
	}
	// Nor is it in the events.
	again := g.again(t, credentials...)
	nc := connect(t, again.url, nats.UserInfo("alice", "hunter2"))
	if e := lastEvent[nodeEvent](t, jetStream(t, nc), "leaf.events.info.node.started."+g.node); e.Config["tag"] == "" || e.Config["password"] != "" {
		t.Errorf("event %+v", e)
	}
}

// What an installation has for life is checked by every generator.
func TestConfigurationThatDiffers(t *testing.T) {
	t.Parallel()
	const epoch = "1600000000000"
	g := embed(t)
	t.Run("joining", func(t *testing.T) {
		leaf(t, "serve", "--http", "", "-s", g.url, "--epoch", epoch).want(t, 1, "--epoch", epoch, "1288834974657")
	})
	g.stop()
	r := runLeaf(t, command(t, g.dir, nil, []string{"serve", "--http", "", "--listen", "127.0.0.1:0", "--epoch", epoch}))
	r.want(t, 1, "--epoch", epoch, "1288834974657")
	g = g.again(t) // it was not changed by that
	g.stop()
}

// A data folder serves its own installation only.
func TestFolderOfAnotherInstallation(t *testing.T) {
	t.Parallel()
	here, empty := newNATS(t), newNATS(t)
	there := embed(t)
	g := serve(t, t.TempDir(), "-s", here.ClientURL())
	g.stop()
	for url, found := range map[string]string{there.url: "this NATS is installation", empty.ClientURL(): "this NATS has no installation"} {
		r := runLeaf(t, command(t, g.dir, nil, []string{"serve", "--http", "", "-s", url}))
		r.want(t, 1, found, "--data-dir", "--server")
		if r.stdout != "" {
			t.Errorf("stdout says %q", r.stdout)
		}
	}
	// Nothing was begun there.
	if kv, err := jetStream(t, connect(t, empty.ClientURL())).KeyValue(t.Context(), "LEAF"); err == nil {
		if entry, err := kv.Get(t.Context(), "installation"); err == nil {
			t.Errorf("an installation was made: %s", entry.Value())
		}
	}
	g = g.again(t)
	g.stop()
}

// A flag beats the environment, and the environment beats the file.
func TestConfigurationSources(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "leaf.yaml"), `
listen: 127.0.0.1:0
node: from_file
http: ""
data-dir: data-from-file
tag: [order, "coupon:20"]
max-batch: 10
max-step: 500
`)
	env := []string{"LEAF_CONFIG=leaf.yaml", "LEAF_NODE=from_env", "LEAF_MAX_BATCH=20", "LEAF_TAG=order, user.id:30"}
	g := ready(t, dir, start(t, command(t, dir, env, []string{"serve", "--max-batch", "30"})))
	if g.node != "from_env" || g.folder != filepath.Join(dir, "data-from-file") || g.mode != "embedded" {
		t.Errorf("ready line %q", g.stdout.String())
	}
	list := leafOK(t, "tag", "list", "-s", g.url)
	if !strings.Contains(list, "order") || !strings.Contains(list, "user.id") || strings.Contains(list, "coupon") {
		t.Errorf("the tags are not those of the environment:\n%s", list)
	}
	nc := connect(t, g.url)
	granted(t, ask(t, nc, "leaf.segment.order", "30"))
	refused(t, ask(t, nc, "leaf.segment.order", "31"), 413, "batch_too_large")

	// The clients take the same variables, those of the nats CLI too.
	for _, variable := range []string{"NATS_URL", "LEAF_SERVER"} {
		r := runLeaf(t, command(t, dir, []string{variable + "=" + g.url}, []string{"get", "order"}))
		r.want(t, 0)
	}
	// NATS_URL makes a generator join; --listen is meant for leaf and beats it.
	join := ready(t, dir, start(t, command(t, t.TempDir(), []string{"NATS_URL=" + g.url, "LEAF_HTTP="}, []string{"serve"})))
	if join.mode != "joined" || join.url != g.url {
		t.Errorf("with NATS_URL: %q", join.stdout.String())
	}
	own := ready(t, dir, start(t, command(t, t.TempDir(), []string{"NATS_URL=" + g.url, "LEAF_HTTP="},
		[]string{"serve", "--listen", "127.0.0.1:0"})))
	if own.mode != "embedded" || own.url == g.url {
		t.Errorf("with NATS_URL and --listen: %q", own.stdout.String())
	}

	writeFile(t, filepath.Join(dir, "bad.yaml"), "listn: 127.0.0.1:0\n")
	leaf(t, "serve", "--config", filepath.Join(dir, "bad.yaml")).want(t, 2, "listn")
}

// An embedded server takes a nats-server configuration, with its own users.
func TestNATSConfiguration(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "nats.conf")
	writeFile(t, file, `
listen: "127.0.0.1:1"
authorization { users: [{user: alice, password: secret}] }
`)
	g := serve(t, t.TempDir(), "--listen", "127.0.0.1:0", "--nats-config", file, "--user", "alice", "--password", "secret", "--tag", "order")
	if _, err := nats.Connect(g.url); !errors.Is(err, nats.ErrAuthorization) {
		t.Errorf("without a password: %v", err)
	}
	leafOK(t, "get", "order", "-s", g.url, "--user", "alice", "--password", "secret")
	g.stop()
}
