package bus

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/internal/wire"
)

// A client looks after leastApart whether its two connections have come to the same server. If they
// stay there, because there is no other one now, the pause grows to mostApart.
const (
	leastApart = time.Second
	mostApart  = 10 * time.Second
)

// Connect returns a client with two connections of its own, to different servers, with the options
// that docs/clients.md names. Each of urls may be a list by commas. If an answer over one
// connection is late, the request is sent again over the other one, and while nothing comes over
// one, requests go over the other. So a NATS server that hangs costs a call a delay. With one
// server there is one connection. Close the client after use. [ConnectWith] has options, such as
// credentials.
func Connect(urls ...string) (*Client, error) { return ConnectWith(urls, nil) }

// ConnectWith is [Connect] with options of the connections, and of the client.
func ConnectWith(urls []string, connection []nats.Option, opts ...Option) (*Client, error) {
	all := append([]nats.Option{
		nats.Name("leafbus"), nats.MaxReconnects(-1), nats.PingInterval(time.Second), nats.MaxPingsOutstanding(2),
		nats.FlusherTimeout(2 * time.Second), nats.ReconnectOnFlusherError(),
	}, connection...)
	list := strings.Join(urls, ",")
	first, err := nats.Connect(list, all...)
	if err != nil {
		return nil, fmt.Errorf("connecting to NATS: %w", err)
	}
	conns := []*nats.Conn{first}
	if len(first.Servers()) > 1 {
		second, err := nats.Connect(list, append(all, nats.RetryOnFailedConnect(true))...)
		if err != nil {
			first.Close()
			return nil, fmt.Errorf("connecting to NATS a second time: %w", err)
		}
		conns = append(conns, second)
		go keepApart(first, second)
	}
	c := newClient(opts, conns...)
	c.owned = conns
	return c, nil
}

// keepApart moves the second connection to another server while both are at the same one.
func keepApart(first, second *nats.Conn) {
	closed := second.StatusChanged(nats.CLOSED)
	for pause := leastApart; ; {
		if id := first.ConnectedServerId(); id != "" && id == second.ConnectedServerId() {
			_ = second.ForceReconnect()
			pause = min(2*pause, mostApart)
		} else {
			pause = leastApart
		}
		select {
		case <-closed:
			return
		case <-time.After(pause):
		}
	}
}

// Close ends the connections that [Connect] made. Calls that wait get [nats.ErrConnectionClosed]. A
// client of [NewClient] has none of its own: close that connection instead.
func (c *Client) Close() error {
	if len(c.owned) == 0 {
		return errors.New("the connection of this client was given to NewClient: close it there")
	}
	for _, nc := range c.owned {
		nc.Close()
	}
	return nil
}

// line is a connection, and the subscription on which its answers arrive. nats.go has such a
// subscription, too, but it takes one answer to a request that it sent once.
type line struct {
	nc     *nats.Conn
	x      *exchange
	number int // of the lines of the exchange

	mu    sync.Mutex
	sub   *nats.Subscription // made before the first request
	inbox string             // begins the subjects of answers: the token of a call, and the number of a request follow
}

func (l *line) publish(subject string, body []byte, token uint64, number int) error {
	inbox, err := l.listen()
	if err != nil {
		return err
	}
	reply := append(make([]byte, 0, 64), inbox...)
	reply = strconv.AppendUint(reply, token, 36)
	reply = strconv.AppendInt(append(reply, '-'), int64(number), 10)
	return l.nc.PublishRequest(subject, string(reply), body)
}

func (l *line) listen() (inbox string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.sub == nil {
		l.inbox = l.nc.NewInbox() + "."
		l.sub, err = l.nc.Subscribe(l.inbox+"*", l.receive)
	}
	return l.inbox, err
}

func (l *line) receive(msg *nats.Msg) {
	token, number, _ := strings.Cut(msg.Subject[strings.LastIndexByte(msg.Subject, '.')+1:], "-")
	t, err := strconv.ParseUint(token, 36, 64)
	if n, bad := strconv.Atoi(number); err == nil && bad == nil {
		l.x.receive(l.number, t, n, msg)
	}
}

func (l *line) away() error {
	if l.nc.IsClosed() {
		return nats.ErrConnectionClosed
	}
	return wire.Away(l.nc)
}

func (l *line) lastError() error { return l.nc.LastError() }

func (l *line) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.sub != nil {
		_ = l.sub.Unsubscribe()
	}
}
