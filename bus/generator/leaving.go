package generator

import (
	"reflect"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"
)

// leaving has the subscriptions with which the generator is leaving queue groups, and the number of reconnects when it
// last told NATS.
//
// A subscription that leaves stays in nats.go until its last request is answered. If the connection is lost meanwhile,
// nats.go subscribes it again: to any number of requests, though a limit may have begun. And at its end nats.go forgets
// it without telling the server, which from then on gives it requests that nobody answers. So the generator leaves
// again after each reconnect. If it comes too late for that, it reconnects, because a new connection has only the
// subscriptions that nats.go knows.
//
// Its methods belong to Generator.Run.
type leaving map[*nats.Subscription]uint64

// note notes subscriptions that the generator is about to leave.
func (l leaving) note(reconnects uint64, subs ...*nats.Subscription) {
	for _, sub := range subs {
		l[sub] = reconnects
	}
}

// again leaves again what nats.go has subscribed again, and forgets what has left. It reports whether the server may
// have a subscription that nats.go has forgotten.
func (l leaving) again(reconnects func() uint64) (forgotten bool) {
	for sub, told := range l {
		valid := sub.IsValid()
		now := reconnects() // after IsValid: what ended before a reconnect was not subscribed again
		if valid && now == told {
			continue
		}
		if valid && sub.Drain() == nil && sub.IsValid() { // it was not forgotten meanwhile, so NATS is told
			l[sub] = now
			continue
		}
		forgotten = forgotten || now != told
		delete(l, sub)
	}
	return forgotten
}

// leaveAgain makes sure that the generator leaves the queue groups that it was leaving when the connection was lost.
func (g *Generator) leaveAgain() {
	if !g.leaving.again(g.reconnects) {
		return
	}
	g.log.Warn("reconnecting, because the connection was lost while this generator left a queue group, and NATS may still count it as a member")
	g.forceReconnect()
}

// endpointSubscriptions returns the subscriptions of a service's endpoints. The package micro does not show them, so
// they are read from its fields. Another version of it may have other fields: then there are none, and a test says so.
func endpointSubscriptions(service micro.Service) (subs []*nats.Subscription) {
	endpoints := field(reflect.ValueOf(service), "endpoints")
	if endpoints.Kind() != reflect.Slice {
		return nil
	}
	for i := range endpoints.Len() {
		sub := field(endpoints.Index(i), "subscription")
		if sub.IsValid() && sub.Type() == reflect.TypeFor[*nats.Subscription]() {
			subs = append(subs, (*nats.Subscription)(sub.UnsafePointer()))
		}
	}
	return subs
}

// field returns a field of what a pointer points to; the zero Value: there is none.
func field(pointer reflect.Value, name string) reflect.Value {
	if pointer.Kind() != reflect.Pointer || pointer.Elem().Kind() != reflect.Struct {
		return reflect.Value{}
	}
	return pointer.Elem().FieldByName(name)
}
