package bus

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"
)

// surveyQuiet is how long after the last answer a survey waits for another:
// nobody knows how many generators there are.
const surveyQuiet = 500 * time.Millisecond

// States asks all generators for their state, and returns those that answered,
// by node. It takes half a second longer than the last answer. If the context ends before
// that, the error says so, beside the states that came.
func (c *Client) States(ctx context.Context) ([]State, error) {
	subject, err := micro.ControlSubject(micro.StatsVerb, serviceLeaf, "")
	if err != nil {
		return nil, err
	}
	var states []State
	err = c.survey(ctx, subject, nil, func(msg *nats.Msg) error {
		var stats micro.Stats
		if err := json.Unmarshal(msg.Data, &stats); err != nil {
			return err
		}
		for _, e := range stats.Endpoints {
			if e.Name != statsEndpoint {
				continue
			}
			var s State
			if err := json.Unmarshal(e.Data, &s); err != nil {
				return err
			}
			states = append(states, s)
		}
		return nil
	})
	slices.SortFunc(states, func(x, y State) int { return strings.Compare(x.Node, y.Node) })
	return states, err
}

// Buffers asks all generators for a page of what they hold in memory, and
// returns those that came, by node. An answer that is an error, or cannot be read,
// does not keep the others' pages back: it is in the error, of which there may be several.
// It takes as long as States.
//
// Each generator has tags of its own, so each page its own Next. Together they have
// every tag up to the least Next that is not empty: the After of the next
// request. What pages have beyond it comes again. With no Next they have all.
func (c *Client) Buffers(ctx context.Context, req PageRequest) ([]BuffersPage, error) {
	var pages []BuffersPage
	var problems []error
	err := c.survey(ctx, SubjectBuffers, encode(req), func(msg *nats.Msg) error {
		var page BuffersPage
		err := replyError(msg)
		if err == nil {
			err = unmarshal(msg, SubjectBuffers, &page)
		}
		if err != nil {
			problems = append(problems, err)
			return nil
		}
		pages = append(pages, page)
		return nil
	})
	slices.SortFunc(pages, func(x, y BuffersPage) int { return strings.Compare(x.Node, y.Node) })
	return pages, errors.Join(append(problems, err)...)
}

// survey sends one request to all who answer it, and gives each answer to f,
// until no more come.
func (c *Client) survey(ctx context.Context, subject string, body []byte, f func(*nats.Msg) error) error {
	ctx, cancel := c.bound(ctx)
	defer cancel()
	if c.nc.Status() == nats.RECONNECTING {
		return fmt.Errorf("the connection to NATS is lost: %w", nats.ErrConnectionReconnecting)
	}
	before := c.nc.LastError()
	inbox := c.nc.NewInbox()
	answers, err := c.nc.SubscribeSync(inbox)
	if err != nil {
		return err
	}
	defer answers.Unsubscribe()
	if err := c.nc.PublishRequest(subject, inbox, body); err != nil {
		return err
	}
	for {
		quiet, cancel := context.WithTimeout(ctx, surveyQuiet)
		msg, err := answers.NextMsgWithContext(quiet)
		cancel()
		switch {
		case errors.Is(err, context.DeadlineExceeded), errors.Is(err, nats.ErrNoResponders):
			return cmp.Or(c.denialOfInbox(before, inbox), c.denial(before, func(s string) bool { return s == subject }), ctx.Err())
		case err != nil:
			return err
		}
		if err := f(msg); err != nil {
			return fmt.Errorf("an answer on %s cannot be read: %w", subject, err)
		}
	}
}
