package zookeeper

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/leafbus/leafbus/internal/testkit"
	server "github.com/leafbus/leafbus/tests/zookeeper"
)

// Close waits for what was asked, whose caller may have given up long before. (This test and
// the next one are not parallel: they look at all goroutines.)
func TestCloseAwaitsWhatWasAsked(t *testing.T) {
	r := newSite(t, server.Hosts(t)).claimed(t, "a")
	begun, closed, ended := make(chan struct{}), make(chan struct{}), make(chan string, 1)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-begun
		cancel()
	}()
	_, err := ask(ctx, r.link, func(context.Context) (int, error) {
		close(begun)
		select {
		case <-closed:
			ended <- "Close did not wait"
		case <-time.After(time.Second):
			ended <- ""
		}
		return 0, nil
	})
	if !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	r.Close()
	close(closed)
	if why := <-ended; why != "" {
		t.Error(why)
	}
	if _, err := r.List(within(t)); err == nil {
		t.Error("it can be asked after Close")
	}
}

// ZooKeeper hangs. Close leaves nothing of the clients that were given up, of the one that
// is there, or of what they were asked.
func TestCloseWhileItHangs(t *testing.T) {
	s, behind, p := newProxied(t, server.Hosts(t))
	if _, _, err := s.admin.Exists("/"); err != nil { // it has connected, too
		t.Fatal(err)
	}
	before := clients()
	r := behind.claimed(t, "a")
	p.Hang(true)
	for range 2 { // the second client finds a server that does not greet it
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		if _, err := r.List(ctx); err == nil {
			t.Fatal("it was answered")
		}
		cancel()
		r.link.mu.Lock()
		c := r.link.client
		r.link.mu.Unlock()
		if c != nil {
			r.link.drop(c)
		}
	}
	r.Close()
	// A goroutine may be about to end.
	testkit.Eventually(t, "as many goroutines of clients as before the registry", func() bool { return clients() == before })
}

// clients is how many goroutines have to do with clients of ZooKeeper.
func clients() (n int) {
	stacks := make([]byte, 1<<22)
	for stack := range strings.SplitSeq(string(stacks[:runtime.Stack(stacks, true)]), "\n\n") {
		if strings.Contains(stack, "go-zookeeper/zk.") {
			n++
		}
	}
	return n
}
