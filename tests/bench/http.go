package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/gateway"
	"github.com/leafbus/leafbus/bus/generator"
)

// overHTTP compares requests for single IDs with requests to the least that
// net/http can serve: a handler that writes as many bytes as an ID has.
func overHTTP(ctx context.Context, p plan) (t *table, err error) {
	s, err := openSite()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	face, stop, err := s.serve(allocator.Tag{Name: "bench", MaxID: 1, Step: allocator.DefaultStep})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	bare, stopBare, err := bareHTTP()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, stopBare()) }()

	t = newTable("over HTTP, 1 ID a request", "connections", "requests/s", "bare net/http's", "ratio",
		"p50 µs", "bare", "p99 µs", "bare", "p99.9 µs", "bare")
	for _, kind := range []string{"segment", "snowflake"} {
		path := "/api/" + kind + "/get/bench"
		for _, callers := range []int{16, 64} {
			results, err := p.compareHTTP(ctx, callers, path, bare, face)
			if err != nil {
				return nil, err
			}
			base, ours := results[0], results[1]
			t.add(kind, strconv.Itoa(callers),
				whole(median(ours, perSecond)), whole(median(base, perSecond)), hundredths(ratio(ours, base, perSecond)),
				whole(median(ours, p50)), whole(median(base, p50)),
				whole(median(ours, p99)), whole(median(base, p99)),
				whole(median(ours, p999)), whole(median(base, p999)))
		}
	}
	return t, nil
}

// serve starts a generator that has this tag, and its HTTP face, wired as `leaf
// serve` does it. stop ends both.
func (s *site) serve(tag allocator.Tag) (addr string, stop func() error, err error) {
	face, drain, err := s.faced(tag)
	if err != nil {
		return "", nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- face.Run(ctx) }()
	return strings.TrimPrefix(face.URL(), "http://"), func() error { cancel(); return errors.Join(<-ended, drain()) }, nil
}

// faced starts a generator that has this tag and is observed by its HTTP face's
// metrics. The face does not run yet. stop drains the generator.
func (s *site) faced(tag allocator.Tag) (face *gateway.Server, stop func() error, err error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, err
	}
	config := gateway.Config{Listener: listener, Metrics: gateway.NewMetrics(), Log: s.log, DrainTimeout: requestTimeout}
	var drain func() error
	config.Generator, drain, err = s.generator(func(c *generator.Config) {
		c.Tags, c.Observer = []allocator.Tag{tag}, config.Metrics
		config.Client = bus.NewClient(c.Conn, bus.JetStream(c.JS))
	})
	if err != nil {
		return nil, nil, errors.Join(err, listener.Close())
	}
	return gateway.New(config), func() error {
		_ = listener.Close() // the face has closed it, if it ran
		return drain()
	}, nil
}

// bareHTTP starts the baseline.
func bareHTTP() (addr string, stop func() error, err error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	plain, body := []string{"text/plain"}, []byte(echoBody) // shared, so that they cost nothing
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header()["Content-Type"] = plain
		_, _ = w.Write(body)
	})}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	stop = func() error {
		err := server.Close()
		if why := <-ended; !errors.Is(why, http.ErrServerClosed) {
			err = errors.Join(err, why)
		}
		return err
	}
	return listener.Addr().String(), stop, nil
}

// compareHTTP compares the same request to several addresses. A caller has a
// connection of its own to each, and keeps it.
func (p plan) compareHTTP(ctx context.Context, callers int, path string, addrs ...string) ([][]sample, error) {
	// Set for each request it would cost more than a look at the clock.
	deadline := time.Now().Add(time.Duration(len(addrs)*(p.rounds+1)) * (p.duration + requestTimeout))
	calls := make([]func(int) error, len(addrs))
	for i, addr := range addrs {
		conns := make([]*httpConn, callers)
		for caller := range conns {
			conn, err := dialHTTP(addr, path, deadline)
			if err != nil {
				return nil, err
			}
			defer conn.Close()
			conns[caller] = conn
		}
		calls[i] = func(caller int) error { return conns[caller].ask() }
	}
	return p.compare(ctx, callers, calls...)
}

// httpConn makes one request again and again, by a write and mostly one read:
// net/http's client costs more than its server, which shares the cores with it,
// and would hide a difference between servers.
type httpConn struct {
	net.Conn
	request []byte
	answers *bufio.Reader
}

func dialHTTP(addr, path string, deadline time.Time) (*httpConn, error) {
	conn, err := net.DialTimeout("tcp", addr, requestTimeout)
	if err != nil {
		return nil, err
	}
	if err := conn.SetDeadline(deadline); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	request := fmt.Appendf(nil, "GET %s HTTP/1.1\r\nHost: %s\r\n\r\n", path, addr)
	return &httpConn{conn, request, bufio.NewReader(conn)}, nil
}

// ask makes the request.
func (c *httpConn) ask() error {
	if _, err := c.Write(c.request); err != nil {
		return err
	}
	line, err := c.line()
	if err != nil {
		return err
	}
	if !bytes.HasPrefix(line, []byte("HTTP/1.1 200 ")) {
		return fmt.Errorf("%.40q is answered with %q", c.request, line)
	}
	length := 0
	for len(line) > 0 {
		if line, err = c.line(); err != nil {
			return err
		}
		if value, ok := bytes.CutPrefix(line, []byte("Content-Length: ")); ok {
			if length, err = strconv.Atoi(string(value)); err != nil {
				return err
			}
		}
	}
	if length < 1 {
		return fmt.Errorf("%.40q is answered without a body of known length", c.request)
	}
	_, err = c.answers.Discard(length)
	return err
}

// line reads a line of an answer's head. It is valid until the next is read.
func (c *httpConn) line() ([]byte, error) {
	line, err := c.answers.ReadSlice('\n')
	return bytes.TrimRight(line, "\r\n"), err
}
