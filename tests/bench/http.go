package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus/gateway"
)

// overHTTP compares requests for single IDs with requests to the least that net/http can serve under the same limits of
// time and of header size: a handler that writes as many bytes as an ID has.
func overHTTP(l *lab) *table {
	face := l.site().faced(tagNamed("bench", allocator.DefaultStep))
	l.serve(face.Run)
	served, plain := strings.TrimPrefix(face.URL(), "http://"), l.bareHTTP()
	of := func(name string, callers int, path string) row {
		return row{name, callers, l.gets(plain, path, callers), l.gets(served, path, callers)}
	}
	return l.measure("over HTTP, 1 ID, beside bare net/http",
		of("segment", 16, "/api/segment/get/bench"),
		of("segment", 64, "/api/segment/get/bench"),
		of("snowflake", 16, "/api/snowflake/get/bench"),
		of("snowflake", 64, "/api/snowflake/get/bench"),
	)
}

// serve runs a server until the end of the scenario.
func (l *lab) serve(run func(context.Context) error) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	l.atEnd(func() error { cancel(); return <-ended })
}

// bareHTTP starts the baseline, and returns its address.
func (l *lab) bareHTTP() string {
	plain, body := []string{"text/plain"}, []byte(echoBody) // shared, so that they cost nothing
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header()["Content-Type"] = plain
		_, _ = w.Write(body)
	}))
	gateway.Bound(server.Config)
	server.Start()
	l.atEnd(func() error { server.Close(); return nil })
	return server.Listener.Addr().String()
}

// gets is a way whose callers make this request. Each has a connection of its own, and keeps it.
func (l *lab) gets(addr, path string, callers int) way {
	conns := make([]*httpConn, callers)
	for i := range conns {
		conns[i] = must(dialHTTP(addr, path))
		l.atEnd(conns[i].Close)
	}
	return l.calls(func(caller int) error { return conns[caller].ask() })
}

// httpConn makes one request again and again. net/http's client costs more than its server, which shares
// the cores with it, and would hide a difference between servers.
type httpConn struct {
	net.Conn
	request []byte
	answers *bufio.Reader
}

func dialHTTP(addr, path string) (*httpConn, error) {
	conn, err := net.DialTimeout("tcp", addr, requestTimeout)
	if err != nil {
		return nil, err
	}
	request := fmt.Appendf(nil, "GET %s HTTP/1.1\r\nHost: %s\r\n\r\n", path, addr)
	// For all that it is asked: a deadline for each request would cost more than a look at the clock.
	return &httpConn{conn, request, bufio.NewReader(conn)}, conn.SetDeadline(time.Now().Add(time.Hour))
}

// ask makes the request.
func (c *httpConn) ask() error {
	if _, err := c.Write(c.request); err != nil {
		return err
	}
	answer, err := http.ReadResponse(c.answers, nil)
	if err != nil {
		return err
	}
	if answer.StatusCode != http.StatusOK || answer.ContentLength < 1 {
		return fmt.Errorf("%.40q is answered with %s and %d bytes", c.request, answer.Status, answer.ContentLength)
	}
	_, err = io.Copy(io.Discard, answer.Body)
	return err
}
