package bus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/leafbus/leafbus/bus/internal/wire"
)

// Decode returns the time, worker and sequence of a snowflake.
func (c *Client) Decode(ctx context.Context, id int64) (Decoded, error) {
	ctx, cancel := c.bound(ctx)
	defer cancel()
	var d Decoded
	msg, _, err := c.ask(ctx, request{subject: SubjectDecode, body: strconv.AppendInt(nil, id, 10)})
	if err != nil {
		return d, err
	}
	return d, unmarshal(msg, SubjectDecode, &d)
}

// Workers returns a page of the workers and their holders. [NoWorkerID]: the registry of workers is
// unavailable.
func (c *Client) Workers(ctx context.Context, req WorkersRequest) (WorkersPage, error) {
	return call[WorkersPage](ctx, c, SubjectWorkersList, req)
}

// ReleaseWorker releases the worker of a stopped generator. It returns the worker's record, which says
// from when on another generator may take it; [snowflake.Release] says what uniqueness then rests on. It
// does not change an unclaimed worker. [Conflict]: a running generator holds the worker or may hold it,
// or the record has changed since the request was made. After [TimedOut], an error that is not an [Error], or one
// that says so, the release may have happened: look with Workers.
func (c *Client) ReleaseWorker(ctx context.Context, req WorkerRelease) (Worker, error) {
	return call[Worker](ctx, c, SubjectWorkersRelease, req)
}

// call makes an administrative request once, because a person should check whether an unconfirmed
// change happened. The request says how long call waits, so that no generator carries it out later.
func call[Resp any](ctx context.Context, c *Client, subject string, req any) (Resp, error) {
	ctx, cancel := c.bound(ctx)
	defer cancel()
	var resp Resp
	msg, _, err := c.ask(ctx, request{subject: subject, body: wire.Encode(req), once: true, patience: timeoutHeader(ctx)})
	if err != nil {
		return resp, err
	}
	return resp, unmarshal(msg, subject, &resp)
}

func unmarshal(msg *nats.Msg, subject string, v any) error {
	if err := json.Unmarshal(msg.Data, v); err != nil {
		return fmt.Errorf("the answer on %s cannot be read: %w", subject, err)
	}
	return nil
}

// Tags returns a page of the tags.
func (c *Client) Tags(ctx context.Context, req PageRequest) (TagsPage, error) {
	return call[TagsPage](ctx, c, SubjectTagsList, req)
}

// Tag returns a tag's record. [UnknownTag]: the tag does not exist.
func (c *Client) Tag(ctx context.Context, tag string) (TagRecord, error) {
	return call[TagRecord](ctx, c, SubjectTagsGet, tagName{tag})
}

// CreateTag adds a tag and returns its record. [Exists]: the tag exists. [BadTag], [BadRequest]: the
// request is not valid. After [TimedOut], or an error that is not an [Error], the tag may have been
// created: make the same request again.
func (c *Client) CreateTag(ctx context.Context, req TagCreate) (TagChange, error) {
	return call[TagChange](ctx, c, SubjectTagsCreate, req)
}

// UpdateTag changes a tag and returns its record. When it returns, a new max_id is in force at every
// generator that is heard; the result names the others. [UnknownTag]: the tag does not exist.
// [Conflict]: max_id would move backwards, or the change looks like a typo and has no Force. After [TimedOut], or an
// error that is not an [Error], the change may have happened: make the same request again.
func (c *Client) UpdateTag(ctx context.Context, req TagUpdate) (TagChange, error) {
	return call[TagChange](ctx, c, SubjectTagsUpdate, req)
}

// AdvanceTag moves a tag's max_id up to the highest ID that any part of the installation knows to be in
// use: the tag's record, every running generator, and its last refill event. It is for the time
// after a restore. [Conflict]: a generator that claimed IDs last is not heard, see [AdvanceRequest]. Like UpdateTag with that max_id, it makes every generator drop the IDs below that it holds.
// [UnknownTag]: the tag does not exist. After [TimedOut], or an error that is not an [Error], the change
// may have happened: make the same request again.
func (c *Client) AdvanceTag(ctx context.Context, req AdvanceRequest) (TagAdvance, error) {
	return call[TagAdvance](ctx, c, SubjectTagsAdvance, req)
}

// MissingTags returns the tags that generators or events know, and of which there is no record. It is for the time
// after a restore: create each one with a MaxID above all its IDs. It may take seconds if there are many tags.
func (c *Client) MissingTags(ctx context.Context) (MissingTags, error) {
	return call[MissingTags](ctx, c, SubjectTagsMissing, struct{}{})
}

// DeleteTag removes a tag and returns its last record. Its IDs are not handed out again, even if the
// tag is created again. [UnknownTag]: the tag does not exist. After [TimedOut] the tag may be deleted,
// and generators that the error names may serve it until they hear of it: make the same request again.
func (c *Client) DeleteTag(ctx context.Context, tag string) (TagChange, error) {
	return call[TagChange](ctx, c, SubjectTagsDelete, tagName{tag})
}

// RevealIDs returns the numbers of IDs of an opaque tag. [BadRequest]: the tag is not opaque, or an ID is not of its domain. [UnknownTag]: the
// tag never existed.
func (c *Client) RevealIDs(ctx context.Context, tag string, ids ...ID) ([]ID, error) {
	r, err := call[Revealed](ctx, c, SubjectTagsReveal, RevealRequest{tag, ids})
	if err == nil && len(r.Numbers) != len(ids) {
		err = fmt.Errorf("the answer on %s has %d numbers for %d IDs", SubjectTagsReveal, len(r.Numbers), len(ids))
	}
	return r.Numbers, err
}

// Claims returns how far tags are claimed.
func (c *Client) Claims(ctx context.Context, req ClaimsRequest) (ClaimsPage, error) {
	return call[ClaimsPage](ctx, c, SubjectClaims, req)
}

// timeoutHeader returns the value of [wire.HeaderTimeout] for a request that waits until the context
// is done. It is empty if the context has no deadline.
func timeoutHeader(ctx context.Context) string {
	end, ok := ctx.Deadline()
	if !ok {
		return ""
	}
	return strconv.FormatInt(max(0, min(time.Until(end), wire.MaxAdminTimeout)).Milliseconds(), 10)
}

// States returns the states of all generators that answer, sorted by node. It takes half a second
// longer than the last answer. If the context ends before that, States returns its error and the
// states that came.
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

// Buffers asks all generators for a page of what they hold in memory. It returns the pages that came,
// sorted by node, and joins the errors of the answers that are errors or cannot be read. It takes as
// long as States.
//
// Each generator has its own tags, so each page has its own Next. The pages are complete up to the
// smallest Next that is not empty: make that the After of the next request. Tags above it come again
// there. If no page has a Next, the pages have all tags.
func (c *Client) Buffers(ctx context.Context, req PageRequest) ([]BuffersPage, error) {
	return c.buffers(ctx, BuffersRequest{PageRequest: req})
}

// BuffersOf asks all generators for what they hold of the named tags, at most 100. Its pages are complete. Else it is like Buffers.
func (c *Client) BuffersOf(ctx context.Context, tags ...string) ([]BuffersPage, error) {
	if len(tags) == 0 {
		return nil, nil
	}
	return c.buffers(ctx, BuffersRequest{Tags: tags})
}

func (c *Client) buffers(ctx context.Context, req BuffersRequest) ([]BuffersPage, error) {
	pages, err := callAll[BuffersPage](ctx, c, SubjectBuffers, req)
	slices.SortFunc(pages, func(x, y BuffersPage) int { return strings.Compare(x.Node, y.Node) })
	return pages, err
}

// Known asks all generators how far they know tags to be in use. Its pages are as those of Buffers.
func (c *Client) Known(ctx context.Context, req KnownRequest) ([]KnownPage, error) {
	return callAll[KnownPage](ctx, c, SubjectKnown, req)
}

// callAll makes a request that every generator answers.
func callAll[Page any](ctx context.Context, c *Client, subject string, req any) ([]Page, error) {
	ctx, cancel := c.bound(ctx)
	defer cancel()
	var pages []Page
	var problems []error
	err := wire.AskAll(ctx, c.nc, subject, wire.Encode(req), func(msg *nats.Msg) error {
		var page Page
		err := ReplyError(msg)
		if err == nil {
			err = unmarshal(msg, subject, &page)
		}
		if err != nil {
			problems = append(problems, err)
			return nil
		}
		pages = append(pages, page)
		return nil
	})
	return pages, errors.Join(append(problems, err)...)
}
