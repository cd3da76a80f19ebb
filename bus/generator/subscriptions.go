package generator

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/internal/wire"
)

// subscriptions is whether NATS has refused one since the generator serves. Its methods are safe
// for concurrent use.
type subscriptions struct {
	*base
	overloaded func()                // counts that nats.go dropped what came for one
	refused    atomic.Pointer[error] // nil: none is
}

// watch ends the start if NATS refuses a subscription. Later the generator is not ready, until it
// connects again: nats.go keeps the subscription as if it were there, but no message comes.
func (s *subscriptions) watch() {
	onError, onReconnect := s.cfg.Conn.ErrorHandler(), s.cfg.Conn.ReconnectHandler()
	s.cfg.Conn.SetErrorHandler(func(nc *nats.Conn, sub *nats.Subscription, err error) {
		if onError != nil {
			onError(nc, sub, err)
		}
		why := refusedSubscription(nc, err)
		switch {
		case errors.Is(err, nats.ErrSlowConsumer):
			s.overloaded()
		case why == nil:
		case !s.phase.serving.Load():
			s.phase.fail(why)
		case s.refused.Swap(&why) == nil:
			s.cfg.Log.Error("this generator is not ready any more", "error", why)
		}
	})
	// nats.go calls it after the errors of the last connection, and before those of the next.
	s.cfg.Conn.SetReconnectHandler(func(nc *nats.Conn) {
		s.refused.Store(nil)
		if onReconnect != nil {
			onReconnect(nc)
		}
	})
}

// err returns which subscription NATS refused; nil: none.
func (s *subscriptions) err() error {
	if why := s.refused.Load(); why != nil {
		return *why
	}
	return nil
}

// refusedSubscription returns what an error of the connection says about a subscription that NATS
// refused; nil: it is no such error.
func refusedSubscription(nc *nats.Conn, err error) error {
	if errors.Is(err, nats.ErrMaxSubscriptionsExceeded) {
		return fmt.Errorf("NATS refuses a subscription, because this connection has as many as it may have (%d): "+
			"raise max_subs of the server, account or user to 200 or more, and restart this generator (%w)",
			nc.NumSubscriptions(), err)
	}
	if subject, ok := wire.DeniedSubscription(err); ok {
		return fmt.Errorf("NATS refuses the subscription to %s: "+
			"give the user of the generators the permissions in SECURITY.md, and restart this generator (%w)",
			subject, err)
	}
	return nil
}

// mayAnswer returns an error if NATS refuses answers to callers. Later an answer may be refused
// although all is well: after a reconnect allow_responses does not know the requests from before.
func mayAnswer(nc *nats.Conn) error {
	inbox, reply := wire.SubjectInbox+"."+rand.Text(), "_INBOX."+rand.Text()
	before := nc.LastError()
	requests, err := nc.SubscribeSync(inbox)
	if err != nil {
		return err
	}
	defer func() { _ = requests.Unsubscribe() }()
	if err := nc.PublishRequest(inbox, reply, nil); err != nil {
		return err
	}
	request, err := requests.NextMsg(flushWait)
	if err != nil {
		return cmp.Or(refusedSubscription(nc, nc.LastError()),
			fmt.Errorf("NATS did not deliver a request to its sender: %w", err))
	}
	if err := errors.Join(request.Respond(nil), nc.FlushTimeout(flushWait)); err != nil {
		return err
	}
	if err := wire.PublishDenied(nc, before, func(s string) bool { return s == reply }); err != nil {
		return fmt.Errorf("NATS refuses answers to callers: "+
			"give the user of the generators allow_responses, as in SECURITY.md (%w)", err)
	}
	return nil
}
