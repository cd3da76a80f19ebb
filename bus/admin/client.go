package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/internal/wire"
)

// Client asks generators over a connection of the caller. [NewClient] returns one. Its methods are
// safe for concurrent use.
type Client struct {
	nc      *nats.Conn
	timeout time.Duration
}

// Option changes how a [Client] works.
type Option func(*Client)

// Timeout bounds a call whose context has no deadline. 0 or less: such a call has no bound.
// Default: [wire.DefaultTimeout].
func Timeout(d time.Duration) Option { return func(c *Client) { c.timeout = d } }

// NewClient returns a client on nc. A program may make as many as it likes: a client is no more
// than its settings.
func NewClient(nc *nats.Conn, opts ...Option) *Client {
	c := &Client{nc: nc, timeout: wire.DefaultTimeout}
	for _, o := range opts {
		o(c)
	}
	return c
}

// Workers returns a page of the workers and their holders. [bus.NoWorkerID]: the registry of
// workers is unavailable.
func (c *Client) Workers(ctx context.Context, req WorkersRequest) (WorkersPage, error) {
	return call[WorkersPage](ctx, c, SubjectWorkersList, req)
}

// ReleaseWorker releases the worker of a stopped generator. It returns the worker's record, which
// says from when on another generator may take it; docs/guarantees.md says what uniqueness then
// rests on. It does not change an unclaimed worker. [bus.Conflict]: a running generator holds the
// worker or may hold it, or the record has changed since the request was made. After
// [bus.TimedOut], an error that is not a [bus.Error], or one that says so, the release may have
// happened: look with Workers.
func (c *Client) ReleaseWorker(ctx context.Context, req WorkerRelease) (Worker, error) {
	return call[Worker](ctx, c, SubjectWorkersRelease, req)
}

// ForgetNode makes all generators forget a lost one, which is gone for good: its alert ends, and
// changes of tags no longer name it. Its worker stays reserved. [bus.Conflict]: the generator runs.
// [bus.BadRequest]: no generator of that name is lost.
func (c *Client) ForgetNode(ctx context.Context, node string) error {
	_, err := call[NodeName](ctx, c, SubjectNodesForget, NodeName{node})
	return err
}

// Tags returns a page of the tags.
func (c *Client) Tags(ctx context.Context, req PageRequest) (TagsPage, error) {
	return call[TagsPage](ctx, c, SubjectTagsList, req)
}

// Tag returns a tag's record. [bus.UnknownTag]: the tag does not exist.
func (c *Client) Tag(ctx context.Context, tag string) (TagRecord, error) {
	return call[TagRecord](ctx, c, SubjectTagsGet, TagName{tag})
}

// CreateTag adds a tag and returns its record. [bus.Exists]: the tag exists. [bus.BadTag],
// [bus.BadRequest]: the request is not valid. After [bus.TimedOut], or an error that is not a
// [bus.Error], the tag may have been created: make the same request again.
func (c *Client) CreateTag(ctx context.Context, req TagSpec) (TagRecord, error) {
	return call[TagRecord](ctx, c, SubjectTagsCreate, req)
}

// UpdateTag changes a tag and returns its record. When it returns, a new max_id is in force at
// every generator that is heard; the result names the others. [bus.UnknownTag]: the tag does not
// exist. [bus.Conflict]: max_id would move backwards, or the change looks like a typo and has no
// Force. After [bus.TimedOut], or an error that is not a [bus.Error], the change may have happened:
// make the same request again.
func (c *Client) UpdateTag(ctx context.Context, req TagSpec) (TagRecord, error) {
	return call[TagRecord](ctx, c, SubjectTagsUpdate, req)
}

// AdvanceTag moves a tag's max_id up to the highest ID that any part of the installation knows to
// be in use: the tag's record, every running generator, and its last refill event. It is for the
// time after a restore. [bus.Conflict]: a generator that claimed IDs last is not heard, see
// [AdvanceRequest]. Like UpdateTag with that max_id, it makes every generator drop the IDs below
// that it holds. [bus.UnknownTag]: the tag does not exist. After [bus.TimedOut], or an error that
// is not a [bus.Error], the change may have happened: make the same request again.
func (c *Client) AdvanceTag(ctx context.Context, req AdvanceRequest) (TagAdvance, error) {
	return call[TagAdvance](ctx, c, SubjectTagsAdvance, req)
}

// MissingTags returns the tags that generators or events know, and of which there is no record. It
// is for the time after a restore: create each one with a MaxID above all its IDs. It may take
// seconds if there are many tags.
func (c *Client) MissingTags(ctx context.Context) (MissingTags, error) {
	return call[MissingTags](ctx, c, SubjectTagsMissing, struct{}{})
}

// EndLoss ends a loss of all tags, and reports whether there was one: from then on a name without a
// record is new. [bus.Conflict]: a tag is known that has no record, see MissingTags, or a generator
// that may know others is not heard.
func (c *Client) EndLoss(ctx context.Context, req EndLossRequest) (ended bool, err error) {
	reply, err := call[EndLossReply](ctx, c, SubjectTagsEndLoss, req)
	return reply.Ended, err
}

// DeleteTag removes a tag and returns its last record. Its IDs are not handed out again, even if
// the tag is created again. [bus.UnknownTag]: the tag does not exist. After [bus.TimedOut] the tag
// may be deleted, and generators that the error names may serve it until they hear of it: make the
// same request again.
func (c *Client) DeleteTag(ctx context.Context, tag string) (TagRecord, error) {
	return call[TagRecord](ctx, c, SubjectTagsDelete, TagName{tag})
}

// RevealIDs returns the numbers of IDs of an opaque tag. [bus.BadRequest]: the tag is not opaque,
// or an ID is not of its domain. [bus.UnknownTag]: the tag never existed.
func (c *Client) RevealIDs(ctx context.Context, tag string, ids ...bus.ID) ([]bus.ID, error) {
	r, err := call[Revealed](ctx, c, SubjectTagsReveal, RevealRequest{tag, ids})
	if err == nil && len(r.Numbers) != len(ids) {
		err = fmt.Errorf("the answer on %s has %d numbers for %d IDs", SubjectTagsReveal, len(r.Numbers), len(ids))
	}
	return r.Numbers, err
}

// States returns the states of all generators that answer, sorted by node, and joins the errors of
// the answers that cannot be read. It takes half a second longer than the last answer. If the
// context ends before that, States returns its error and the states that came.
func (c *Client) States(ctx context.Context) ([]State, error) {
	all, err := callAll[micro.Stats](ctx, c, statsSubject, struct{}{})
	var states []State
	for _, stats := range all {
		for _, e := range stats.Endpoints {
			if e.Name != wire.StatsEndpoint {
				continue
			}
			var s State
			if bad := json.Unmarshal(e.Data, &s); bad != nil {
				err = errors.Join(err, fmt.Errorf("the state of a generator cannot be read: %w", bad))
				continue
			}
			states = append(states, s)
		}
	}
	slices.SortFunc(states, func(x, y State) int { return strings.Compare(x.Node, y.Node) })
	return states, err
}

// Buffers asks all generators for a page of what they hold in memory, or of the named tags. It
// returns the pages that came, sorted by node, and joins the errors of the answers that are errors
// or cannot be read. It takes as long as States.
//
// Each generator has its own tags, so each page has its own Next. The pages are complete up to the
// smallest Next that is not empty: make that the After of the next request. Tags above it come
// again there. If no page has a Next, the pages have all tags.
func (c *Client) Buffers(ctx context.Context, req BuffersRequest) ([]BuffersPage, error) {
	pages, err := callAll[BuffersPage](ctx, c, SubjectBuffers, req)
	slices.SortFunc(pages, func(x, y BuffersPage) int { return strings.Compare(x.Node, y.Node) })
	return pages, err
}

// Known asks all generators how far they know tags to be in use. Its pages are as those of Buffers.
func (c *Client) Known(ctx context.Context, req KnownRequest) ([]KnownPage, error) {
	return callAll[KnownPage](ctx, c, SubjectKnown, req)
}
