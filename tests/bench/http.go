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
	"github.com/leafbus/leafbus/bus/gateway"
)

// overHTTP compares requests for single IDs with requests to the least that net/http can serve under the same limits of
// time and of header size: a handler that writes as many bytes as an ID has.
func overHTTP(l *lab) *table {
	face := l.site().faced(tagNamed("bench", allocator.DefaultStep))
	l.serve(face.Run)
	served, plain := strings.TrimPrefix(face.URL(), "http://"), l.bareHTTP()
	of := func(name string, callers int, path string) row {
		return row{name, callers, l.gets(plain, path), l.gets(served, path)}
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
	listener := must(net.Listen("tcp", "127.0.0.1:0"))
	plain, body := []string{"text/plain"}, []byte(echoBody) // shared, so that they cost nothing
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header()["Content-Type"] = plain
		_, _ = w.Write(body)
	})}
	gateway.Bound(server)
	l.serve(func(ctx context.Context) error {
		context.AfterFunc(ctx, func() { server.Close() })
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
	return listener.Addr().String()
}

// gets is a way whose callers make this request. Each has a connection of its own, and keeps it.
func (l *lab) gets(addr, path string) way {
	var conns []*httpConn
	return func(callers int) (sample, error) {
		for len(conns) < callers {
			conn := must(dialHTTP(addr, path))
			l.atEnd(conn.Close)
			conns = append(conns, conn)
		}
		for _, conn := range conns { // set for each request it would cost more than a look at the clock
			check(conn.SetDeadline(time.Now().Add(l.duration + requestTimeout)))
		}
		return l.load(callers, func(caller int) error { return conns[caller].ask() })
	}
}

// httpConn makes one request again and again, by a write and mostly one read:
// net/http's client costs more than its server, which shares the cores with it,
// and would hide a difference between servers.
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
