package bus

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/bus/internal/wire"
)

const (
	// mostAnswers is how many requests of one call may be without an answer. Of more the oldest one is given up.
	mostAnswers = 32
	// lateFor is how long a client knows the requests of a call that has ended.
	lateFor = 5 * time.Second
)

// inbox receives the answers to all requests of a client, on one subscription. nats.go has such a subscription, too,
// but it takes one answer to a request that it sent once, and forgets a request when its caller leaves.
type inbox struct {
	nc      *nats.Conn
	subject string // with the wildcard

	mu     sync.Mutex
	sub    *nats.Subscription
	last   uint64 // token that was used. A token is the number of a request, and the end of the subject of its answer
	open   map[uint64]receiver
	late   []lateToken // of open, in the order in which they are given up
	closed bool        // with the connection
}

// receiver waits for the answer to a request. It is a call, or the function that a call left behind when it ended.
type receiver struct {
	p    *pending
	i    int // the request's place in p.sent
	late func(*nats.Msg)
}

// lateToken is a request of a call that has ended.
type lateToken struct {
	token uint64
	until time.Time
}

// arrival is an answer to a request of a call; nil: the subscription has ended.
type arrival struct {
	msg *nats.Msg
	i   int
}

// get hands an answer to the call. There is room for all that it waits for.
func (p *pending) get(a arrival) {
	select {
	case p.answers <- a:
	default:
	}
}

// end unsubscribes.
func (in *inbox) end() {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.sub != nil {
		_ = in.sub.Unsubscribe()
	}
}

// close ends all calls.
func (in *inbox) close() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.closed = true
	for token, r := range in.open {
		delete(in.open, token)
		if r.p != nil {
			r.p.get(arrival{nil, r.i})
		}
	}
}

// expect returns the subject for the answer to the i-th request of a call.
func (in *inbox) expect(p *pending, i int) (token uint64, reply string, err error) {
	in.mu.Lock()
	if err = in.listen(); err == nil {
		in.last++
		token = in.last
		in.open[token] = receiver{p: p, i: i}
	}
	in.mu.Unlock()
	if err != nil {
		return 0, "", err
	}
	b := make([]byte, 0, 64)
	b = append(b, in.subject[:len(in.subject)-1]...)
	return token, string(strconv.AppendUint(b, token, 36)), nil
}

// listen subscribes before the first request.
func (in *inbox) listen() error {
	switch {
	case in.closed:
		return nats.ErrConnectionClosed
	case in.sub != nil:
		return nil
	}
	in.subject, in.open = in.nc.NewInbox()+".*", make(map[uint64]receiver)
	sub, err := in.nc.Subscribe(in.subject, in.receive)
	if err != nil {
		return err
	}
	sub.SetClosedHandler(func(string) { in.close() })
	in.sub = sub
	// This sends nothing. It makes the subscription of nats.go, which cannot be made any more when the connection drains.
	_, _ = in.nc.Request("", nil, time.Second)
	return nil
}

// receive hands an answer to its call.
func (in *inbox) receive(msg *nats.Msg) {
	prefix := len(in.subject) - 1
	if len(msg.Subject) <= prefix {
		return
	}
	token, err := strconv.ParseUint(msg.Subject[prefix:], 36, 64)
	if err != nil {
		return
	}
	in.mu.Lock()
	r, ok := in.open[token]
	delete(in.open, token)
	if ok && r.p != nil {
		r.p.get(arrival{msg, r.i})
	}
	in.mu.Unlock()
	if r.late != nil {
		r.late(msg)
	}
}

// leave gives up a request of a call that has ended. If its answer comes within lateFor, late gets it. Without late the
// answer is dropped.
func (in *inbox) leave(token uint64, late func(*nats.Msg)) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if _, ok := in.open[token]; !ok {
		return // answered meanwhile
	}
	if late == nil {
		delete(in.open, token)
		return
	}
	in.open[token] = receiver{late: late}
	in.late = append(in.late, lateToken{token, time.Now().Add(lateFor)})
	if len(in.late) == 1 {
		time.AfterFunc(lateFor, in.purge)
	}
}

// purge gives up the requests that nobody answered for lateFor.
func (in *inbox) purge() {
	in.mu.Lock()
	defer in.mu.Unlock()
	now := time.Now()
	for len(in.late) > 0 && !in.late[0].until.After(now) {
		delete(in.open, in.late[0].token)
		in.late = in.late[1:]
	}
	if len(in.late) > 0 {
		time.AfterFunc(in.late[0].until.Sub(now), in.purge)
	}
}

// denied returns the denial of the call, if NATS denied it.
func (p *pending) denied(ctx context.Context) error {
	nc := p.c.nc
	if !errors.Is(nc.LastError(), nats.ErrPermissionViolation) {
		return nil
	}
	publishes := func(subject string) bool { return subject == p.subject }
	if err := wire.Denied(nc, p.before, p.c.inbox.subject, publishes); err != nil || p.probed {
		return err
	}
	harmless := ""
	if strings.HasPrefix(p.subject, SubjectSegment+".") || p.subject == SubjectSnowflake || p.subject == SubjectDecode {
		harmless = p.subject
	}
	ctx, cancel := context.WithDeadline(ctx, p.attemptAt)
	defer cancel()
	var err error
	p.probed, err = wire.Probe(ctx, nc, harmless, publishes)
	return err
}
