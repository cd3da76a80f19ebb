package wire

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"net"
	"sync"
	"time"
)

// mostGreeting bounds a greeting, in bytes. It lists every server of the cluster.
const mostGreeting = 1 << 20

// Greeting is what a NATS server says of itself (INFO). It greets each connection at once, unless TLS comes first.
type Greeting struct {
	ID      string `json:"server_id"`
	Name    string `json:"server_name"`
	Version string `json:"version"`
	Cluster string `json:"cluster"` // empty: it is in none
	TLS     bool   `json:"tls_required"`
}

// ReadGreeting reads the first line of a connection, and what came with it: text. ok is false if it is no greeting.
func ReadGreeting(conn net.Conn, deadline time.Time) (g Greeting, text []byte, ok bool, err error) {
	if err := conn.SetReadDeadline(deadline); err != nil {
		return g, nil, false, err
	}
	buf := make([]byte, 4096)
	for len(text) < mostGreeting && bytes.IndexByte(text, '\n') < 0 {
		n, err := conn.Read(buf)
		text = append(text, buf[:n]...)
		if err != nil {
			return g, nil, false, err
		}
	}
	line, _, _ := bytes.Cut(text, []byte("\n"))
	word, body, _ := bytes.Cut(line, []byte(" "))
	ok = bytes.EqualFold(word, []byte("INFO")) && json.Unmarshal(body, &g) == nil
	return g, text, ok, conn.SetReadDeadline(time.Time{})
}

// ServerIDs returns the ID of the NATS server at each address; empty: none greets before the context is done, which
// has a deadline. With a secured configuration TLS comes before the greeting. It asks all at the same time.
func ServerIDs(ctx context.Context, addresses []string, secured *tls.Config) map[string]string {
	var asks sync.WaitGroup
	var mu sync.Mutex
	ids := make(map[string]string)
	end, _ := ctx.Deadline()
	for _, address := range addresses {
		asks.Go(func() {
			var g Greeting
			dial := new(net.Dialer).DialContext
			if secured != nil {
				dial = (&tls.Dialer{Config: secured}).DialContext
			}
			if conn, err := dial(ctx, "tcp", address); err == nil {
				g, _, _, _ = ReadGreeting(conn, end)
				conn.Close()
			}
			mu.Lock()
			defer mu.Unlock()
			ids[address] = g.ID
		})
	}
	asks.Wait()
	return ids
}
