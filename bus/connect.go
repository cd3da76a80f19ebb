package bus

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// apartAfter is how often a client looks whether its two connections have come to the same server.
const apartAfter = 5 * time.Second

// Connect returns a client with two connections of its own, to different servers, with the options that
// docs/clients.md names. Each of urls may be a list by commas. If an answer over the first connection is late, the
// request is sent again over the other one. If three calls in a row have their answers from there, that becomes the
// first. So a NATS server that hangs costs a call a delay. With one server there is one connection. Close the client
// after use. [ConnectWith] has options, such as credentials.
func Connect(urls ...string) (*Client, error) { return ConnectWith(urls, nil) }

// ConnectWith is [Connect] with options of the connections, and of the client.
func ConnectWith(urls []string, connection []nats.Option, opts ...Option) (*Client, error) {
	all := append([]nats.Option{
		nats.Name("leafbus"), nats.MaxReconnects(-1), nats.PingInterval(time.Second), nats.MaxPingsOutstanding(2),
		nats.FlusherTimeout(2 * time.Second), nats.ReconnectOnFlusherError(),
	}, connection...)
	first, err := nats.Connect(strings.Join(urls, ","), all...)
	if err != nil {
		return nil, fmt.Errorf("connecting to NATS: %w", err)
	}
	conns := []*nats.Conn{first}
	if second := connectElsewhere(first, all); second != nil {
		conns = append(conns, second)
	}
	c := newClient(opts, conns...)
	c.owned = conns
	if len(conns) == 2 {
		c.apart = keepApart(conns[0], conns[1])
	}
	return c, nil
}

// connectElsewhere returns a connection to another server than the first one has. If none can be reached now, it tries
// again until one can. nil: there is no other one.
func connectElsewhere(first *nats.Conn, opts []nats.Option) *nats.Conn {
	servers := first.Servers()
	var unreachable []string
	for i, url := range servers {
		if url == first.ConnectedUrl() {
			continue
		}
		// The others are for reconnects.
		list := append([]string{url}, append(servers[i+1:len(servers):len(servers)], servers[:i]...)...)
		nc, err := nats.Connect(strings.Join(list, ","), append(opts, nats.DontRandomize())...)
		if err != nil {
			unreachable = append(unreachable, url)
			continue
		}
		if nc.ConnectedServerId() != first.ConnectedServerId() {
			return nc
		}
		if nc.ConnectedUrl() != url { // url did not answer, and the list has the server of the first connection, too
			unreachable = append(unreachable, url)
		}
		nc.Close()
	}
	if len(unreachable) == 0 {
		return nil
	}
	nc, _ := nats.Connect(strings.Join(unreachable, ","), append(opts, nats.RetryOnFailedConnect(true))...)
	return nc
}

// keepApart moves the second connection to another server when both have come to the same one. stop ends that.
func keepApart(first, second *nats.Conn) (stop func()) {
	ended := make(chan struct{})
	go func() {
		for {
			select {
			case <-ended:
				return
			case <-time.After(apartAfter):
			}
			if id := first.ConnectedServerId(); id != "" && id == second.ConnectedServerId() {
				_ = second.ForceReconnect()
			}
		}
	}()
	return sync.OnceFunc(func() { close(ended) })
}

// Close ends the connections that [Connect] made. Calls that wait get [nats.ErrConnectionClosed]. A client of
// [NewClient] has none of its own: close that connection instead.
func (c *Client) Close() error {
	if len(c.owned) == 0 {
		return errors.New("the connection of this client was given to NewClient: close it there")
	}
	for _, nc := range c.owned {
		nc.Close()
	}
	if c.apart != nil {
		c.apart()
	}
	return nil
}
