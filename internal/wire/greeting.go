package wire

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"io"
	"net"
	"sync"
)

// mostGreeting bounds a greeting, in bytes. It lists every server of the cluster.
const mostGreeting = 1 << 20

// ServerIDs returns the ID of the NATS server at each address; empty: none greets before the
// context is done, which has a deadline. With a secured configuration TLS comes before the
// greeting. It asks all at the same time.
func ServerIDs(ctx context.Context, addresses []string, secured *tls.Config) map[string]string {
	var asks sync.WaitGroup
	var mu sync.Mutex
	ids := make(map[string]string)
	for _, address := range addresses {
		asks.Go(func() {
			id := serverID(ctx, address, secured)
			mu.Lock()
			defer mu.Unlock()
			ids[address] = id
		})
	}
	asks.Wait()
	return ids
}

// serverID reads what a server says of itself (INFO). It greets each connection at once, unless TLS
// comes first.
func serverID(ctx context.Context, address string, secured *tls.Config) string {
	dial := new(net.Dialer).DialContext
	if secured != nil {
		dial = (&tls.Dialer{Config: secured}).DialContext
	}
	conn, err := dial(ctx, "tcp", address)
	if err != nil {
		return ""
	}
	defer conn.Close()
	end, _ := ctx.Deadline()
	_ = conn.SetReadDeadline(end)
	line, _ := bufio.NewReader(io.LimitReader(conn, mostGreeting)).ReadBytes('\n')
	word, body, _ := bytes.Cut(line, []byte(" "))
	var greeting struct {
		ID string `json:"server_id"`
	}
	if !bytes.EqualFold(word, []byte("INFO")) || json.Unmarshal(body, &greeting) != nil {
		return ""
	}
	return greeting.ID
}
