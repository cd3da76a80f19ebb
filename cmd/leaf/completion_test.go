package main

import (
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/bus"
)

// completed returns what a shell is offered, and the directive for it.
func completed(t *testing.T, args ...string) (offered []string, directive string) {
	t.Helper()
	status, stdout, stderr := leaf(t, append([]string{"__complete"}, args...)...)
	if status != exitOK {
		t.Fatalf("completing %q: status %d: %s", args, status, stderr)
	}
	lines := strings.Split(strings.TrimSpace(stdout), "\n")
	return lines[:len(lines)-1], lines[len(lines)-1]
}

// cobra's directives.
const (
	offerFiles   = ":0"
	offerNoFiles = ":4"
	offerFolders = ":16"
)

// Tags are completed from the installation that the command would ask.
func TestCompleteTags(t *testing.T) {
	url := answering(t, "leaf.admin.tags.list", func(body string) (string, string) {
		if body != `{"prefix":"or","limit":100}` {
			t.Errorf("asked for %s", body)
		}
		return `{"tags":[{"tag":"order"},{"tag":"order.item"}],"unserved":[{"tag":"or bad","problem":"p"}],"next":"order.item"}`, ""
	})
	named := []string{"-s", url}
	for _, command := range [][]string{{"get"}, {"tag", "show"}, {"tag", "info"}, {"tag", "set"}, {"tag", "rm"}, {"bench"}, {"trace"}} {
		offered, directive := completed(t, append(append(command, named...), "or")...)
		if strings.Join(offered, " ") != "order order.item" || directive != offerNoFiles {
			t.Errorf("%v: offered %q, %s", command, offered, directive)
		}
		if offered, directive = completed(t, append(append(command, named...), "order", "or")...); len(offered) > 0 || directive != offerNoFiles {
			t.Errorf("%v with a tag: offered %q, %s", command, offered, directive)
		}
	}
	for _, command := range [][]string{{"tag", "advance"}, {"audit"}} {
		if offered, _ := completed(t, append(append(command, named...), "order", "or")...); strings.Join(offered, " ") != "order.item" {
			t.Errorf("%v, a second tag: offered %q", command, offered)
		}
	}
	t.Setenv("LEAF_SERVER", url)
	if offered, _ := completed(t, "get", "or"); len(offered) != 2 {
		t.Errorf("with LEAF_SERVER: offered %q", offered)
	}
	for _, command := range [][]string{{"tag", "add"}, {"snowflake"}, {"nodes"}} {
		if offered, directive := completed(t, append(command, "or")...); len(offered) > 0 || directive != offerNoFiles {
			t.Errorf("%v: offered %q, %s", command, offered, directive)
		}
	}
}

// Without an answer, nothing is offered, and the shell waits for less time than a command would.
func TestCompleteTagsWithoutAnswer(t *testing.T) {
	cleanEnv(t)
	url := startNATS(t, &server.Options{}).ClientURL()
	nc, err := nats.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	if _, err := nc.Subscribe("leaf.admin.tags.list", func(*nats.Msg) {}); err != nil {
		t.Fatal(err)
	}
	hung, err := net.Listen("tcp", "127.0.0.1:0") // accepts, and says nothing
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { hung.Close() })
	for name, args := range map[string][]string{
		"no NATS": {"-s", freeAddress(t)}, "no answer": {"-s", url}, "hung": {"-s", hung.Addr().String() + "," + hung.Addr().String()}, "bad server": {"-s", "http://h"}, "bad file": {"--config", "none.yaml"},
	} {
		begun := time.Now()
		if offered, directive := completed(t, append(append([]string{"get"}, args...), "or")...); len(offered) > 0 || directive != offerNoFiles {
			t.Errorf("%s: offered %q, %s", name, offered, directive)
		}
		if took := time.Since(begun); took >= bus.DefaultTimeout {
			t.Errorf("%s: after %v", name, took)
		}
	}
}

func TestCompleteFlags(t *testing.T) {
	cleanEnv(t)
	for _, c := range []struct {
		args      []string
		offered   string
		directive string
	}{
		{[]string{"serve", "--log-level", ""}, "debug info warn error", offerNoFiles},
		{[]string{"serve", "--log-format", ""}, "text json", offerNoFiles},
		{[]string{"serve", "--data-dir", ""}, "", offerFolders},
		{[]string{"serve", "--nats-config", ""}, "", offerFiles},
		{[]string{"serve", "--http-tlskey", ""}, "", offerFiles},
		{[]string{"serve", "--config", ""}, "", offerFiles},
		{[]string{"get", "--creds", ""}, "", offerFiles},
		{[]string{"get", "order", "--output", ""}, "", offerFiles},
		{[]string{"bench", "--taken", ""}, "", offerFiles},
		{[]string{"audit", "--taken", ""}, "", offerFiles},
		{[]string{"audit", "--taken-snowflakes", ""}, "", offerFiles},
		{[]string{"trace", "--snowflake", ""}, "", offerNoFiles},
		{[]string{"serve", "--time-unit", ""}, "1ms 10ms 100ms 1s", offerNoFiles},
		{[]string{"layout", "--time-unit", "1"}, "1ms 10ms 100ms 1s", offerNoFiles},
		{[]string{"layout", "--id-bits", ""}, "", offerNoFiles},
		{[]string{"serve", "--node", ""}, "", offerNoFiles},
		{[]string{"serve", "--max-batch", ""}, "", offerNoFiles},
	} {
		offered, directive := completed(t, c.args...)
		if strings.Join(offered, " ") != c.offered || directive != c.directive {
			t.Errorf("%q: offered %q, %s; want %s, %s", c.args, offered, directive, c.offered, c.directive)
		}
	}
	if offered, _ := completed(t, "serve", "--shared-"); len(offered) != 1 || !strings.HasPrefix(offered[0], "--shared-table\t") {
		t.Errorf("serve --shared-: %q", offered)
	}
	if offered, _ := completed(t, "bench", "--with", ""); len(offered) != 3 {
		t.Errorf("bench --with: %q", offered)
	}
}

// The files in the working folder are not offered as tags.
func TestCompleteNoFiles(t *testing.T) {
	cleanEnv(t)
	t.Chdir(t.TempDir())
	if err := os.WriteFile("order.txt", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if offered, directive := completed(t, "get", "-s", freeAddress(t), "or"); len(offered) > 0 || directive != offerNoFiles {
		t.Errorf("offered %q, %s", offered, directive)
	}
}
