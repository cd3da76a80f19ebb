package embedded

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"net"
	"sync"
	"time"
)

// routeAnswers is how long a server may take to answer at a route.
const routeAnswers = time.Second

// Routes returns the ID of the server at each route of the configuration, by host and port:
// [nats.Conn.ConnectedServerId] of that server's clients. The ID is empty if no server answers. The server's own
// address may be among the routes.
func (s *Server) Routes(ctx context.Context) map[string]string {
	ctx, cancel := context.WithTimeout(ctx, routeAnswers)
	defer cancel()
	var asks sync.WaitGroup
	var mu sync.Mutex
	ids := make(map[string]string)
	for _, address := range s.routes {
		asks.Go(func() {
			id := serverAt(ctx, address)
			mu.Lock()
			defer mu.Unlock()
			ids[address] = id
		})
	}
	asks.Wait()
	return ids
}

// serverAt returns the ID of the server at an address: each server sends its INFO first.
func serverAt(ctx context.Context, address string) (id string) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return ""
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	line, _ := bufio.NewReader(conn).ReadBytes('\n')
	var info struct {
		ID string `json:"server_id"`
	}
	_ = json.Unmarshal(bytes.TrimPrefix(line, []byte("INFO ")), &info)
	return info.ID
}
