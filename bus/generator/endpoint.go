package generator

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/nats-io/nats.go/micro"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/internal/wire"
)

const (
	// maxAdmin is how many administrative requests are worked on at a time.
	maxAdmin = 64
	// maxAnswerTime is the most of a sender's patience that is kept for the way of the answer.
	maxAnswerTime = 250 * time.Millisecond
)

// addService adds a micro service without endpoints.
func (g *Generator) addService(name, description string, stats micro.StatsHandler) (micro.Service, error) {
	return micro.AddService(g.cfg.Conn, micro.Config{
		Name: name, Version: bus.Version(), Description: description, QueueGroup: bus.QueueGroup,
		Metadata: map[string]string{"node": g.cfg.Node}, StatsHandler: stats,
	})
}

// addLeafService adds the service leaf: administration and state, decoding, clocks. Unlike the two
// services that issue IDs it is always there.
func (g *Generator) addLeafService() (micro.Service, error) {
	service, err := g.addService(wire.ServiceLeaf, "Leafbus generator: administration and state", g.stats)
	if err != nil {
		return nil, err
	}
	question := func(time.Time) time.Duration { return 0 } // however old it is, its answer does no harm
	change := g.group.pulse.age
	for name, e := range map[string]struct {
		subject string
		handler micro.Handler
	}{
		"tags-list":       {bus.SubjectTagsList, endpoint(g, question, g.tagsList)},
		"tags-get":        {bus.SubjectTagsGet, endpoint(g, question, g.tagsGet)},
		"tags-create":     {bus.SubjectTagsCreate, endpoint(g, change, g.tagsCreate)},
		"tags-update":     {bus.SubjectTagsUpdate, endpoint(g, change, g.tagsUpdate)},
		"tags-advance":    {bus.SubjectTagsAdvance, endpoint(g, change, g.tagsAdvance)},
		"tags-delete":     {bus.SubjectTagsDelete, endpoint(g, change, g.tagsDelete)},
		"tags-reveal":     {bus.SubjectTagsReveal, endpoint(g, question, g.tagsReveal)},
		"workers-list":    {bus.SubjectWorkersList, endpoint(g, question, g.workersList)},
		"workers-release": {bus.SubjectWorkersRelease, endpoint(g, change, g.workersRelease)},
		"claims":          {bus.SubjectClaims, endpoint(g, question, g.claims)},
		"decode":          {bus.SubjectDecode, micro.HandlerFunc(g.decode)},
	} {
		err = errors.Join(err, service.AddEndpoint(name, e.handler, micro.WithEndpointSubject(e.subject)))
	}
	// All generators answer these, so they have no queue group.
	return service, errors.Join(err,
		service.AddEndpoint("clock", micro.HandlerFunc(g.answerClock),
			micro.WithEndpointSubject(bus.SubjectClock), micro.WithEndpointQueueGroupDisabled()),
		service.AddEndpoint(wire.StatsEndpoint, endpoint(g, question, g.buffers),
			micro.WithEndpointSubject(bus.SubjectBuffers), micro.WithEndpointQueueGroupDisabled()))
}

// endpoint is the one edge of the administrative requests: it decodes, calls f, maps the error and
// encodes. f runs outside the callback, because stores take their time. The context of f ends
// before the sender gives up. age is how old a request can be that is read at that time; endpoint
// refuses a request if its sender may have given up.
func endpoint[Req, Resp any](
	g *Generator, age func(time.Time) time.Duration, f func(context.Context, Req) (Resp, error),
) micro.Handler {
	return micro.HandlerFunc(func(r micro.Request) {
		reply, data := r.Reply(), r.Data()
		if reply == "" {
			return
		}
		a := g.answer(AdminKind, NATS)
		now := time.Now()
		patience, err := readPatience(r.Headers().Get(wire.HeaderTimeout))
		end := now.Add(patience - age(now) - answerTime(patience))
		if err == nil && !end.After(now) {
			err = g.late()
		}
		if err != nil {
			g.refuse(reply, a, err)
			return
		}
		select {
		case g.adminSlots <- struct{}{}:
		default:
			g.refuse(reply, a, fmt.Errorf("%w: %d administrative requests are in progress", allocator.ErrOverloaded, maxAdmin))
			return
		}
		started := g.requests.start(func() {
			ctx, cancel := context.WithDeadline(g.life, end)
			defer cancel()
			req, err := decode[Req](data)
			var resp Resp
			if err == nil && !time.Now().Before(end) { // a process that stood still may not have noticed that ctx is done
				err = g.late()
			}
			if err == nil {
				resp, err = f(ctx, req)
			}
			<-g.adminSlots // before the answer: the sender's next request may come as soon as it has the answer
			if err != nil {
				g.refuse(reply, a, storeError(err))
				return
			}
			body := wire.Encode(resp)
			if most := g.cfg.Conn.MaxPayload(); int64(len(body)) > most {
				g.refuse(reply, a, &bus.Error{Code: 500, Reason: bus.Internal, Message: fmt.Sprintf(
					"the answer has %d bytes, and a NATS message at most %d: raise max_payload", len(body), most)})
				return
			}
			g.respond(reply, body)
			g.served(a, 0)
		})
		if !started {
			<-g.adminSlots
			g.refuse(reply, a, allocator.ErrClosed)
		}
	})
}

// storeError marks an error that is none of the allocator's as the store's.
func storeError(err error) error {
	if e := toError(err); e.Reason != bus.Internal {
		return e
	}
	return fmt.Errorf("%w: %w", allocator.ErrUnavailable, err)
}

// decode reads the JSON of an administrative request. An empty body is {}.
func decode[Req any](data []byte) (Req, error) {
	var req Req
	if data = bytes.TrimSpace(data); len(data) == 0 {
		return req, nil
	}
	if data[0] != '{' {
		return req, badRequest("the body is not a JSON object: %s", wire.Quote(data))
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&req); err != nil {
		return req, badRequest("the body cannot be read: %v", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return req, badRequest("more follows the JSON object")
	}
	return req, nil
}

// readPatience returns how long a sender waits, from the header wire.HeaderTimeout.
func readPatience(header string) (time.Duration, error) {
	if header == "" {
		return bus.DefaultTimeout, nil
	}
	ms, err := strconv.ParseUint(header, 10, 32)
	if err != nil {
		return 0, badRequest("the header %s is %s, not a number of milliseconds", wire.HeaderTimeout, wire.Quote([]byte(header)))
	}
	return min(time.Duration(ms)*time.Millisecond, wire.MaxAdminTimeout), nil
}

// answerTime is how much of a sender's patience is kept for the way of the answer.
func answerTime(patience time.Duration) time.Duration { return min(patience/10, maxAnswerTime) }

// late is the error of a request that came so late that its sender may have given up.
func (g *Generator) late() error {
	return &bus.Error{Code: 503, Reason: bus.Draining, Message: fmt.Sprintf("generator %s stood still or was cut off "+
		"when this request came, or the request's timeout is too short: nothing was done, send it again", g.cfg.Node)}
}
