package natsversion

import (
	"bufio"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
)

// startSlow starts a server that sends its PING before its PONG to the first clients, as a NATS server does that was slow.
func startSlow(t *testing.T, first int) (url string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	t.Cleanup(func() { l.Close(); <-ended })
	go func() {
		defer close(ended)
		for came := 0; ; came++ {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { conn.Close() })
			fmt.Fprint(conn, `INFO {"server_id":"x","version":"2.10.29","headers":true,"max_payload":1048576,"proto":1}`+"\r\n")
			answer := "PONG\r\n"
			if came < first {
				answer = "PING\r\nPONG\r\n"
			}
			lines := bufio.NewScanner(conn)
			for lines.Scan() && !strings.HasPrefix(lines.Text(), "PING") {
			}
			fmt.Fprint(conn, answer)
		}
	}()
	return "nats://" + l.Addr().String()
}

// A server that was slow is connected to at the next try. One that always is gets no more than some.
func TestConnectToASlowServer(t *testing.T) {
	t.Parallel()
	for first, ok := range map[int]bool{0: true, 1: true, slowTries - 1: true, slowTries: false} {
		nc, err := New(slog.New(slog.DiscardHandler)).Connect(startSlow(t, first), nats.NoReconnect())
		if (err == nil) != ok {
			t.Errorf("after %d slow greetings: %v", first, err)
		}
		if nc != nil {
			nc.Close()
		}
	}
}
