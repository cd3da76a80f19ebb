package tests

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/leafbus/leafbus/allocator/allocatortest"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/internal/testkit"
)

// withHTTP starts a generator with a NATS server of its own and an HTTP face on a free port.
func withHTTP(t *testing.T, args ...string) *generator {
	t.Helper()
	return embed(t, append([]string{"--http", "127.0.0.1:0"}, args...)...)
}

// page is an answer over HTTP.
type page struct {
	status int
	header http.Header
	body   string
}

// fetch asks over HTTP as a client would that has no surprises: it follows no redirect.
func fetch(t *testing.T, method, url string, header ...string) page {
	t.Helper()
	return fetchBy(t, http.DefaultTransport, method, url, header...)
}

func fetchBy(t *testing.T, by http.RoundTripper, method, url string, header ...string) page {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	must(t, err)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	answer, err := by.RoundTrip(r)
	if err != nil {
		t.Fatalf("%s %s: %v", method, url, err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	must(t, err)
	return page{answer.StatusCode, answer.Header, string(body)}
}

// leafFailure is Leaf's error body.
type leafFailure struct {
	Timestamp                       int64
	Status                          int
	Error, Exception, Message, Path string
}

// What a client of Leaf relies on, with a real generator behind it.
func TestLeafsAPI(t *testing.T) {
	t.Parallel()
	g := withHTTP(t, "--tag", "order", "--tag", "shop.order.eu", "--tag", "a=b/c-d", "--tag", "a//b")
	want := func(p page, status int, contentType, body string) {
		t.Helper()
		if p.status != status || p.header.Get("Content-Type") != contentType || p.body != body {
			t.Errorf("%d %q %q, want %d %q %q", p.status, p.header.Get("Content-Type"), p.body, status, contentType, body)
		}
	}
	const plain, asJSON = "text/plain;charset=UTF-8", "application/json;charset=UTF-8"
	order := g.http + "/api/segment/get/order"
	want(fetch(t, "GET", order), 200, plain, "1")
	want(fetch(t, "GET", order, "Accept", "application/json"), 200, asJSON, "2")
	want(fetch(t, "HEAD", order), 200, plain, "")
	for _, method := range []string{"POST", "PUT", "DELETE", "OPTIONS"} {
		if p := fetch(t, method, order); p.status != 405 {
			t.Errorf("%s: %d %s", method, p.status, p.body)
		}
	}
	want(fetch(t, "GET", order), 200, plain, "3")
	want(fetch(t, "GET", order+"?count=10"), 200, plain, "4-13")
	want(fetch(t, "GET", order+"?count=2", "Accept", "application/json"), 200, asJSON, `{"count":2,"ranges":[{"first":"14","last":"15"}]}`)
	for tag, path := range map[string]string{"shop.order.eu": "shop.order.eu", "a=b/c-d": "a=b/c-d", "a//b": "a//b"} {
		want(fetch(t, "GET", g.http+"/api/segment/get/"+path), 200, plain, "1")
		want(fetch(t, "GET", g.http+"/api/segment/get/"+strings.ReplaceAll(path, "/", "%2F")), 200, plain, "2")
		if reply := ask(t, connect(t, g.url), "leaf.segment."+tag, ""); string(reply.Data) != "3" {
			t.Errorf("%s over NATS: %q", tag, reply.Data)
		}
	}

	for key, id := range map[string]int{"unknown": -2, "a%20b": -2, "a..b": -2} {
		p := fetch(t, "GET", g.http+"/api/segment/get/"+key)
		var f leafFailure
		must(t, json.Unmarshal([]byte(p.body), &f))
		if age := time.Since(time.UnixMilli(f.Timestamp)); age < -time.Second || age > patience {
			t.Errorf("the timestamp is %d", f.Timestamp)
		}
		f.Timestamp = 0
		if p.status != 500 || f != (leafFailure{0, 500, "Internal Server Error", "com.sankuai.inf.leaf.server.exception.LeafServerException",
			fmt.Sprintf("Result{id=%d, status=EXCEPTION}", id), "/api/segment/get/" + key}) {
			t.Errorf("%s: %d %s", key, p.status, p.body)
		}
	}

	flake := fetch(t, "GET", g.http+"/api/snowflake/get/any.key")
	id, err := strconv.ParseInt(flake.body, 10, 64)
	if flake.status != 200 || err != nil {
		t.Fatalf("%+v", flake)
	}
	var decoded bus.Decoded
	must(t, json.Unmarshal(ask(t, connect(t, g.url), "leaf.decode", flake.body).Data, &decoded))
	local := time.UnixMilli(decoded.UnixMS).Format("2006-01-02 15:04:05.000")
	want(fetch(t, "GET", g.http+"/decodeSnowflakeId?snowflakeId="+flake.body), 200, asJSON, fmt.Sprintf(
		`{"workerId":"%d","sequenceId":"%d","timestamp":"%d(%s)"}`, decoded.Worker, decoded.Sequence, decoded.UnixMS, local))
	for _, bad := range []string{"x", "", "-5", strconv.FormatInt(id+1<<40, 10)} {
		if p := fetch(t, "GET", g.http+"/decodeSnowflakeId?snowflakeId="+bad); p.status != 200 || !strings.HasPrefix(p.body, `{"errorMsg":"`) {
			t.Errorf("%q is decoded: %+v", bad, p)
		}
	}
	if p := fetch(t, "GET", g.http+"/decodeSnowflakeId"); p.status != 400 {
		t.Errorf("without an ID: %+v", p)
	}
	for _, path := range []string{"/cache", "/db"} {
		if p := fetch(t, "GET", g.http+path); p.status != 302 || p.header.Get("Location") != "/#tags" {
			t.Errorf("%s: %d %v", path, p.status, p.header)
		}
	}
}

// Callers over HTTP and over NATS, of two generators one of which is killed again and again:
// no ID comes twice.
func TestHTTPWhileGeneratorsComeAndGo(t *testing.T) {
	t.Parallel()
	stays := withHTTP(t, "--tag", "order:1000")
	goes := serve(t, t.TempDir(), "-s", stays.url, "--http", "127.0.0.1:0")
	var tags, flakes allocatortest.Checker
	overNATS := startLoad(t, loadConfig{tag: "order", callers: 4, maxBatch: 500, each: func(r bus.Range) { tags.Add(r) }}, stays.url)
	var taken atomic.Int64
	var address atomic.Pointer[string] // of the one that goes
	address.Store(&goes.http)
	over := make(chan struct{})
	var callers sync.WaitGroup
	for i := range 12 {
		callers.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-over:
					return
				default:
				}
				at, path, checker := stays.http, "/api/segment/get/order", &tags
				if i%2 == 0 {
					at = *address.Load()
				}
				if i%3 == 0 {
					path, checker = "/api/snowflake/get/any", &flakes
				}
				if n%4 == 0 {
					path += "?count=" + strconv.Itoa(1+n%300)
				}
				answer, err := http.Get(at + path)
				if err != nil {
					if i%2 == 1 {
						t.Error(err)
						return
					}
					time.Sleep(time.Millisecond) // it is gone
					continue
				}
				body, err := io.ReadAll(answer.Body)
				answer.Body.Close()
				if err != nil || answer.StatusCode != 200 {
					if i%2 == 1 {
						t.Errorf("%d %s %v", answer.StatusCode, body, err)
						return
					}
					continue
				}
				ids, err := bus.ParseReply(body)
				if err != nil {
					t.Error(err)
					return
				}
				checker.Add(ids...)
				taken.Add(1)
			}
		})
	}
	for range 3 {
		until := taken.Load() + 1000
		testkit.Eventually(t, "callers to get IDs", func() bool { return taken.Load() > until })
		goes.kill()
		until = taken.Load() + 500
		testkit.Eventually(t, "callers to get IDs from the other generator", func() bool { return taken.Load() > until })
		goes = goes.again(t, "--http", "127.0.0.1:0")
		address.Store(&goes.http)
	}
	close(over)
	callers.Wait()
	overNATS.stop()
	for name, c := range map[string]*allocatortest.Checker{"order": &tags, "snowflakes": &flakes} {
		if _, err := c.Check(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	t.Logf("%d requests over HTTP", taken.Load())
}

// Requests over HTTP wait for the store when the generator is told to stop: they are
// answered as soon as it works.
func TestStopAnswersWaitingHTTPRequests(t *testing.T) {
	t.Parallel()
	const count = 10
	g := withHTTP(t, "--tag", "order:10", "--max-step", "10", "--max-wait", "1m", "--drain-timeout", "1m")
	nc := connect(t, g.url)
	breakStore(t, jetStream(t, nc), true)
	bodies := make(chan string, count)
	for range count {
		go func() {
			answer, err := http.Get(g.http + "/api/segment/get/order?count=5")
			if err != nil {
				bodies <- err.Error()
				return
			}
			defer answer.Body.Close()
			body, err := io.ReadAll(answer.Body)
			if err != nil {
				body = []byte(err.Error())
			}
			bodies <- string(body)
		}()
	}
	testkit.Eventually(t, "the requests to wait", func() bool {
		return states(t, bus.NewClient(nc), 1)[0].Counts.Waiting == count
	})
	g.signal(syscall.SIGTERM)
	refusesNew(t, nc)
	testkit.Eventually(t, "the generator to take no new connections", func() bool {
		c, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Get(g.http + "/healthz")
		if err == nil {
			c.Body.Close()
		}
		return err != nil
	})
	breakStore(t, jetStream(t, nc), false)
	var checker allocatortest.Checker
	for range count {
		ids, err := bus.ParseReply([]byte(<-bodies))
		if err != nil {
			t.Fatal(err)
		}
		checker.Add(ids...)
	}
	if ids, err := checker.Check(); err != nil || ids != 5*count {
		t.Errorf("%d IDs came, want %d: %v", ids, 5*count, err)
	}
	if status := g.wait(patience); status != 0 {
		t.Errorf("exit status %d", status)
	}
}

// When the time for that is over, they are refused, and not cut off.
func TestStopRefusesWaitingHTTPRequests(t *testing.T) {
	t.Parallel()
	g := withHTTP(t, "--tag", "order:10", "--max-step", "10", "--max-wait", "1m", "--drain-timeout", "200ms")
	nc := connect(t, g.url)
	breakStore(t, jetStream(t, nc), true)
	type answer struct {
		*http.Response
		err error
	}
	answers := make(chan answer, 2)
	for _, path := range []string{"/api/segment/get/order?count=5", "/api/snowflake/get/any?count=900000"} {
		go func() {
			a, err := http.Get(g.http + path)
			answers <- answer{a, err}
		}()
	}
	testkit.Eventually(t, "the request to wait", func() bool {
		return states(t, bus.NewClient(nc), 1)[0].Counts.Waiting >= 1
	})
	g.signal(syscall.SIGTERM)
	for range 2 {
		a := <-answers
		if a.err != nil {
			t.Errorf("cut off: %v", a.err)
			continue
		}
		a.Body.Close()
		if a.StatusCode != 200 && a.Header.Get("Leaf-Error-Reason") != "draining" {
			t.Errorf("%d %v", a.StatusCode, a.Header)
		}
	}
	if status := g.wait(patience); status != 0 {
		t.Errorf("exit status %d", status)
	}
}

// The error about an address in use shows commands that work.
func TestHTTPAddressInUse(t *testing.T) {
	t.Parallel()
	first := withHTTP(t)
	address := strings.TrimPrefix(first.http, "http://")
	for _, args := range [][]string{{"-s", first.url}, {"--listen", "127.0.0.1:0"}} {
		r := runLeaf(t, command(t, first.dir, nil, append([]string{"serve", "--http", address, "--data-dir", "another"}, args...)))
		r.want(t, 1, address, "already in use")
		advised := 0
		for line := range strings.Lines(r.stderr) {
			if line = strings.TrimSpace(line); !strings.HasPrefix(line, "leaf serve") {
				continue
			}
			dir := t.TempDir()
			shell := exec.Command("sh", "-c", "exec "+line)
			like := command(t, dir, nil, nil)
			shell.Dir, shell.Env = dir, append(like.Env, "PATH="+leafBin)
			g := ready(t, dir, start(t, shell))
			if off := g.http == "off"; off != (advised == 1) || (g.url == first.url) != (args[0] == "-s") {
				t.Errorf("%q is at %s and %s", line, g.url, g.http)
			}
			advised++
			g.stop()
		}
		if advised != 2 {
			t.Errorf("advised %d commands: %s", advised, r.stderr)
		}
	}
}
