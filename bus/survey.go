package bus

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"github.com/leafbus/leafbus/bus/internal/wire"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"
)

// States asks all generators for their state, and returns those that answered,
// by node. It takes half a second longer than the last answer. If the context ends before
// that, the error says so, beside the states that came.
func (c *Client) States(ctx context.Context) ([]State, error) {
	subject, err := micro.ControlSubject(micro.StatsVerb, wire.ServiceLeaf, "")
	if err != nil {
		return nil, err
	}
	ctx, cancel := c.bound(ctx)
	defer cancel()
	var states []State
	err = wire.AskAll(ctx, c.nc, subject, nil, func(msg *nats.Msg) error {
		var stats micro.Stats
		if err := json.Unmarshal(msg.Data, &stats); err != nil {
			return err
		}
		for _, e := range stats.Endpoints {
			if e.Name != wire.StatsEndpoint {
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
	ctx, cancel := c.bound(ctx)
	defer cancel()
	var pages []BuffersPage
	var problems []error
	err := wire.AskAll(ctx, c.nc, SubjectBuffers, wire.Encode(req), func(msg *nats.Msg) error {
		var page BuffersPage
		err := ReplyError(msg)
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
