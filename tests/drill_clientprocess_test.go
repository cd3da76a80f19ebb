//go:build drills

package tests

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/allocator/allocatortest"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/internal/testkit"
)

const (
	// clientEnv has the settings of a [clientProcess] as JSON. With it the test binary runs no tests.
	clientEnv = "LEAF_TEST_CLIENT"
	// clientReady is the line that a client process writes when its first call was answered.
	clientReady = "ready"
)

func init() {
	settings := os.Getenv(clientEnv)
	if settings == "" {
		return
	}
	met, err := runClient(settings)
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(met)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// clientConfig is what the callers of a client process do: each calls, rests, and calls again.
type clientConfig struct {
	URL, Tag string
	Kind     string // next, take, pool
	Strict   bool   // the order of the IDs is checked
	Callers  int
	Deadline time.Duration // of each call
	Rest     time.Duration
}

// clientMet is what the callers met. Times are counted in nanoseconds.
type clientMet struct {
	Calls    []clientCall
	Errors   map[string]int
	Requests uint64 // messages that the client sent
	Stats    bus.Stats
	Ranges   []bus.Range
	Order    string // why the order of a strict tag is wrong; empty: it is right
	// Longest time by which a sleep of 1 ms was too long. No call can be better than its machine.
	Overslept time.Duration
}

// clientCall is a call that has ended.
type clientCall struct {
	At     int64 // of its end, since 1970
	Took   time.Duration
	Failed bool `json:",omitempty"`
}

// runClient is the client process. It lasts until its standard input ends.
func runClient(settings string) (*clientMet, error) {
	var cfg clientConfig
	if err := json.Unmarshal([]byte(settings), &cfg); err != nil {
		return nil, err
	}
	nc, err := nats.Connect(cfg.URL)
	if err != nil {
		return nil, err
	}
	defer nc.Close()
	client := bus.NewClient(nc)
	call, err := cfg.call(client)
	if err != nil {
		return nil, err
	}
	if _, err := call(context.Background()); err != nil { // its ID is a gap
		return nil, err
	}
	fmt.Println(clientReady)

	before := nc.Stats().OutMsgs
	ended := make(chan struct{})
	var all sync.WaitGroup
	var mu sync.Mutex
	met := &clientMet{Errors: make(map[string]int)}
	var taken allocatortest.Checker
	var history allocatortest.History
	for range cfg.Callers {
		all.Go(func() {
			var calls []clientCall
			for more := true; more; {
				ctx, cancel := context.WithTimeout(context.Background(), cfg.Deadline)
				began := time.Now()
				ranges, err := call(ctx)
				end := time.Now()
				cancel()
				calls = append(calls, clientCall{At: end.UnixNano(), Took: end.Sub(began), Failed: err != nil})
				taken.Add(ranges...)
				if err != nil {
					mu.Lock()
					met.Errors[err.Error()]++
					mu.Unlock()
				} else if cfg.Strict {
					history.Add(began, end, ranges...)
				}
				select {
				case <-ended:
					more = false
				case <-time.After(cfg.Rest):
				}
			}
			mu.Lock()
			defer mu.Unlock()
			met.Calls = append(met.Calls, calls...)
		})
	}
	all.Go(func() { met.Overslept = oversleep(ended) })
	_, _ = io.Copy(io.Discard, os.Stdin) // however it ends
	close(ended)
	all.Wait()
	met.Requests, met.Stats = nc.Stats().OutMsgs-before, client.Stats()
	if _, err := history.Check(); err != nil {
		met.Order = err.Error()
	}
	if _, err := taken.Check(); err != nil {
		return nil, err
	}
	met.Ranges = taken.Ranges()
	return met, nil
}

// call returns what a caller does.
func (cfg clientConfig) call(client *bus.Client) (func(context.Context) ([]bus.Range, error), error) {
	single := func(next func(context.Context) (int64, error)) func(context.Context) ([]bus.Range, error) {
		return func(ctx context.Context) ([]bus.Range, error) {
			id, err := next(ctx)
			if err != nil {
				return nil, err
			}
			return []bus.Range{{First: id, Last: id}}, nil
		}
	}
	switch cfg.Kind {
	case "next":
		return single(func(ctx context.Context) (int64, error) { return client.Next(ctx, cfg.Tag) }), nil
	case "take":
		return func(ctx context.Context) ([]bus.Range, error) { return client.Take(ctx, cfg.Tag, 1) }, nil
	case "pool":
		pool, err := client.Pool(cfg.Tag)
		if err != nil {
			return nil, err
		}
		return single(pool.Next), nil
	}
	return nil, fmt.Errorf("there are no callers of the kind %q", cfg.Kind)
}

// oversleep sleeps for 1 ms again and again, and returns by how much the longest sleep was too long.
func oversleep(ended <-chan struct{}) (longest time.Duration) {
	for {
		select {
		case <-ended:
			return longest
		default:
		}
		began := time.Now()
		time.Sleep(time.Millisecond)
		longest = max(longest, time.Since(began)-time.Millisecond)
	}
}

// clientProcess is a running client.
type clientProcess struct {
	*process
	stdin io.Closer
}

// startClient starts a client in a process of its own, and waits until it has its first ID.
func startClient(t *testing.T, cfg clientConfig) *clientProcess {
	t.Helper()
	settings, err := json.Marshal(cfg)
	must(t, err)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), clientEnv+"="+string(settings))
	stdin, err := cmd.StdinPipe()
	must(t, err)
	p := &clientProcess{start(t, cmd), stdin}
	testkit.Eventually(t, "the first ID of a client", func() bool {
		select {
		case <-p.exited:
			t.Fatalf("the client has ended: %s", p.stderr.String())
		default:
		}
		return strings.HasPrefix(p.stdout.String(), clientReady+"\n")
	})
	return p
}

// stop ends the calls and returns what they met.
func (p *clientProcess) stop() (met clientMet) {
	p.t.Helper()
	must(p.t, p.stdin.Close())
	if status := p.wait(patience); status != 0 {
		p.t.Fatalf("the client failed: %s", p.stderr.String())
	}
	_, report, _ := strings.Cut(p.stdout.String(), "\n")
	must(p.t, json.Unmarshal([]byte(report), &met))
	if met.Order != "" {
		p.t.Error(errors.New(met.Order))
	}
	return met
}
