package tests

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/tests/mariadb"
	"github.com/leafbus/leafbus/tests/proxy"
)

// A generator does not carry out a command after its sender has given up, whether the
// process stood still or its network hung.
func TestLateCommand(t *testing.T) {
	t.Parallel()
	server := newNATS(t)
	link, err := proxy.Start(strings.TrimPrefix(server.ClientURL(), "nats://"))
	must(t, err)
	t.Cleanup(link.Close)
	g := serve(t, t.TempDir(), "-s", "nats://"+link.Addr(), "--tag", "order", "--tag", "other")
	c := client(t, server.ClientURL())
	for name, way := range map[string]struct{ stop, resume func() }{
		"the process stood still": {g.freeze, func() { g.signal(syscall.SIGCONT) }},
		"the network hung":        {func() { link.Hang(true) }, func() { link.Hang(false) }},
	} {
		takeOne(t, c, "order") // all that came before is done
		way.stop()
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		_, err := c.DeleteTag(ctx, "order")
		cancel()
		if err == nil || !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("%s: %v", name, err)
		}
		way.resume()
		description := name
		testkit.Eventually(t, "a change to be carried out again", func() bool {
			_, err := c.UpdateTag(t.Context(), bus.TagUpdate{Tag: "other", Description: &description})
			return err == nil
		})
		if _, err := c.Tag(t.Context(), "order"); err != nil {
			t.Fatalf("%s: a command that had failed was carried out: %v", name, err)
		}
	}
}

// A process that stood still while max_id was moved asks the database before it hands out an ID,
// over HTTP too. The command names it.
func TestStoodStillWhileMaxIDMoves(t *testing.T) {
	t.Parallel()
	dsn := mariadb.NewDatabase(t)
	url := newNATS(t).ClientURL()
	still := serve(t, t.TempDir(), "-s", url, "--mysql", dsn, "--tag", "order:1000", "--http", "127.0.0.1:0", "--node", "still")
	serve(t, t.TempDir(), "-s", url, "--mysql", dsn)
	order := still.http + "/api/segment/get/order"
	if p := fetch(t, "GET", order); p.status != 200 {
		t.Fatal(p)
	}
	still.freeze()
	moved := moveMaxID(t, url, 1_000_000)
	moved.want(t, 0, "still")
	if !strings.Contains(moved.stdout, `"unheard": [`) && !strings.Contains(moved.stdout, `"unheard":["still"]`) {
		t.Errorf("the reply names nobody: %s", moved.stdout)
	}
	still.signal(syscall.SIGCONT)
	for range 20 {
		p := fetch(t, "GET", order)
		if id, err := strconv.ParseInt(p.body, 10, 64); err != nil || id < 1_000_000 {
			t.Fatalf("after max_id was moved to 1000000: %+v", p)
		}
	}
	c := client(t, url)
	states(t, c, 2)
	testkit.Eventually(t, "nobody to be missed", func() bool {
		description := "again"
		changed, err := c.UpdateTag(t.Context(), bus.TagUpdate{Tag: "order", Description: &description})
		return err == nil && !slices.Contains(changed.Unheard, "still")
	})
}

// moveMaxID moves max_id of order, by several commands at a time until a generator that is
// not cut off gets one.
func moveMaxID(t *testing.T, url string, to int64) (moved result) {
	t.Helper()
	testkit.Eventually(t, "max_id to be moved", func() bool {
		var commands []*process
		for range 4 {
			commands = append(commands, start(t, command(t, t.TempDir(), nil,
				[]string{"tag", "set", "order", "--max-id", strconv.FormatInt(to, 10), "--json", "-s", url})))
		}
		done := false
		for _, p := range commands {
			if status := p.wait(patience); status == 0 {
				done, moved = true, result{status, p.stdout.String(), p.stderr.String()}
			}
		}
		return done
	})
	return moved
}
