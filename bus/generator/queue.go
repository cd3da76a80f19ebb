package generator

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/internal/wire"
)

const (
	// mostQueued bounds the requests of a service that wait. Beyond it nats.go drops requests, and
	// reports that.
	mostQueued = 65_536
	// lookAfter is after how many requests, and peekEvery after how long, a busy queue looks at its
	// valve.
	lookAfter = 64
	peekEvery = 20 * time.Millisecond
	// dropAbove times the limit of the valve are the requests that may wait when it has just been
	// shut. Those beyond are lost, because their answers would come late.
	dropAbove = 2
)

// queue is a service's place in the queue group: its subscriptions, the requests that wait, and the
// goroutine run, which reads them one after the other:
//
//	run
//	├── serve   handles a request
//	├── look    the valve: subscribes and unsubscribes; what is left
//	└── f       of do: join, leave, again, drain
type queue struct {
	conn       *nats.Conn
	log        *slog.Logger
	name       string
	handle     func(*nats.Msg) *bus.Error // its error is that of the answer; nil: none yet
	overloaded func()                     // counts an overload
	reconnect  func()                     // makes the connection begin again

	requests chan *nats.Msg
	orders   chan func()
	ended    chan struct{} // closed when run returns

	// Owned by run.
	endpoints []micro.EndpointStats
	joined    bool                 // the service takes part, or does again when the valve opens
	subs      []*nats.Subscription // none: it does not take part, or the valve is shut
	valve     valve
	// leaving are subscriptions that drain. If the connection is lost meanwhile, nats.go subscribes
	// them again, and forgets them at their end without a word to the server. Then the server gives
	// them requests that nobody reads.
	leaving    []*nats.Subscription
	reconnects uint64 // of the connection, before leaving was begun
}

func newQueue(conn *nats.Conn, log *slog.Logger, name string, endpoints ...micro.EndpointStats) *queue {
	return &queue{conn: conn, log: log, name: name, endpoints: endpoints,
		requests: make(chan *nats.Msg, mostQueued), orders: make(chan func()), ended: make(chan struct{})}
}

// run handles requests until the context is done.
func (q *queue) run(ctx context.Context) {
	defer close(q.ended)
	ticker := time.NewTicker(peekEvery)
	defer ticker.Stop()
	for n := 1; ; n++ {
		if n%lookAfter != 0 {
			select { // the usual case: a choice of several costs more
			case msg := <-q.requests:
				q.serve(msg)
				continue
			default:
			}
		} else {
			q.look(time.Now())
		}
		var tick <-chan time.Time // nil: there is nothing to look at
		if !q.valve.at.IsZero() || len(q.leaving) > 0 {
			tick = ticker.C
		}
		select {
		case msg := <-q.requests:
			q.serve(msg)
		case f := <-q.orders:
			f()
		case now := <-tick:
			q.look(now)
		case <-ctx.Done():
			return
		}
	}
}

// do lets run call f, and waits for its end. After the end of run it does nothing.
func (q *queue) do(f func()) {
	done := make(chan struct{})
	select {
	case q.orders <- func() { defer close(done); f() }:
		<-done
	case <-q.ended:
	}
}

// serve handles a request.
func (q *queue) serve(msg *nats.Msg) {
	begun := time.Now()
	err := q.handle(msg)
	for i := range q.endpoints {
		if e := &q.endpoints[i]; e.Subject == msg.Sub.Subject {
			e.NumRequests++
			e.ProcessingTime += time.Since(begun)
			if err != nil {
				e.NumErrors++
				e.LastError = fmt.Sprintf("%d:%s", err.Code, err.Message)
			}
		}
	}
	q.valve.served(len(q.requests))
}

// drain handles the requests that wait.
func (q *queue) drain() {
	for n := len(q.requests); n > 0; n-- {
		q.serve(<-q.requests)
	}
}

// look opens or shuts the valve, and sees whether subscriptions have drained.
func (q *queue) look(now time.Time) {
	q.departed()
	if !q.joined {
		return
	}
	if q.valve.shut && len(q.leaving) > 0 { // NATS still passes on what it took before
		if len(q.requests) > dropAbove*q.valve.limit {
			q.unsubscribe()
		}
		return
	}
	calm := q.valve.at.IsZero()
	switch q.valve.look(now, len(q.requests)) {
	case valveShuts:
		q.overloaded()
		if calm {
			q.log.Warn("more requests come than this generator can answer: it takes a part of them", "service", q.name)
		}
		q.depart()
	case valveOpens:
		if err := q.subscribe(); err != nil {
			q.valve.shut = true
			q.log.Debug("the queue group cannot be entered again yet", "service", q.name, "error", err)
		}
	case overloadEnds:
		q.log.Info("the overload is over", "service", q.name)
	}
}

// join enters the queue group.
func (q *queue) join() error {
	q.valve, q.joined = valve{}, true
	for i, e := range q.endpoints {
		q.endpoints[i] = micro.EndpointStats{Name: e.Name, Subject: e.Subject, QueueGroup: wire.QueueGroup}
	}
	return q.subscribe()
}

// leave leaves the queue group for good. What NATS has passed on is still handled.
func (q *queue) leave() {
	q.joined = false
	q.depart()
}

// depart leaves the queue group. What NATS has passed on is still handled.
func (q *queue) depart() {
	if !q.conn.IsConnected() {
		q.unsubscribe()
	}
	if len(q.leaving) == 0 {
		q.reconnects = q.conn.Stats().Reconnects
	}
	q.leaving = append(q.leaving, q.subs...)
	for _, sub := range q.subs {
		if err := sub.Drain(); err != nil {
			q.log.Debug("a queue group cannot be left in order", "service", q.name, "error", err)
		}
	}
	q.subs = nil
}

// again leaves the queue group, forgets the requests that wait, and enters it again.
func (q *queue) again() error {
	q.unsubscribe()
	for n := len(q.requests); n > 0; n-- {
		<-q.requests
	}
	if !q.joined {
		return nil
	}
	q.valve = valve{}
	return q.subscribe()
}

// subscribe subscribes to the subjects of all endpoints.
func (q *queue) subscribe() error {
	for _, e := range q.endpoints {
		sub, err := q.conn.ChanQueueSubscribe(e.Subject, wire.QueueGroup, q.requests)
		if err != nil {
			q.unsubscribe()
			return err
		}
		q.subs = append(q.subs, sub)
	}
	return nil
}

// unsubscribe leaves the queue group at once, also where it is draining. Requests on their way are
// lost.
func (q *queue) unsubscribe() {
	for _, sub := range q.subs {
		if err := sub.Unsubscribe(); err != nil {
			q.log.Debug("a queue group cannot be left in order", "service", q.name, "error", err)
		}
	}
	q.subs = nil
	q.leaving = slices.DeleteFunc(q.leaving, func(sub *nats.Subscription) bool { return sub.Unsubscribe() == nil })
}

// departed forgets subscriptions that have drained. If the server may still have one, it
// reconnects.
func (q *queue) departed() {
	were := len(q.leaving)
	q.leaving = slices.DeleteFunc(q.leaving, func(sub *nats.Subscription) bool { return !sub.IsValid() })
	// Reconnects are read later: what ended before one was not subscribed again.
	if len(q.leaving) < were && q.conn.Stats().Reconnects != q.reconnects {
		q.log.Warn("reconnecting, because the connection was lost while this generator left a queue group, "+
			"and NATS may still count it as a member", "service", q.name)
		q.reconnect()
	}
}

// left reports whether the queue group is left, and all its requests were handled.
func (q *queue) left() (left bool) {
	left = true
	q.do(func() {
		q.departed()
		left = len(q.subs)+len(q.leaving)+len(q.requests) == 0
	})
	return left
}
