package generator

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/admin"
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
	for subject, handle := range g.admin {
		name := strings.ReplaceAll(strings.TrimPrefix(subject, adminPrefix), ".", "-")
		handler := micro.HandlerFunc(func(r micro.Request) {
			handle(adminRequest{r.Subject(), r.Reply(), nats.Header(r.Headers()), r.Data(), false})
		})
		err = errors.Join(err, service.AddEndpoint(name, handler, micro.WithEndpointSubject(subject)))
	}
	err = errors.Join(err, service.AddEndpoint("decode", micro.HandlerFunc(g.decode), micro.WithEndpointSubject(bus.SubjectDecode)))
	// All generators answer these, so they have no queue group.
	own := func(name, subject string, handle func(adminRequest)) error {
		handler := micro.HandlerFunc(func(r micro.Request) {
			handle(adminRequest{r.Subject(), r.Reply(), nats.Header(r.Headers()), r.Data(), true})
		})
		return service.AddEndpoint(name, handler, micro.WithEndpointSubject(subject), micro.WithEndpointQueueGroupDisabled())
	}
	return service, errors.Join(err,
		service.AddEndpoint("clock", micro.HandlerFunc(g.answerClock),
			micro.WithEndpointSubject(bus.SubjectClock), micro.WithEndpointQueueGroupDisabled()),
		own("known", admin.SubjectKnown, endpoint(g, question, g.known)),
		own(wire.StatsEndpoint, admin.SubjectBuffers, endpoint(g, question, g.buffers)))
}

const (
	// adminPrefix is what comes before the name of an administrative request in its subject.
	adminPrefix = "leaf.admin."

	question = false // however old it is, its answer does no harm
	change   = true
)

// adminRequest is an administrative request.
type adminRequest struct {
	subject, reply string
	header         nats.Header
	body           []byte
	passed         bool // by a peer, or it is for this generator alone
}

// adminHandlers returns what answers the requests that any generator may answer, by subject.
func (g *Generator) adminHandlers() map[string]func(adminRequest) {
	return map[string]func(adminRequest){
		admin.SubjectTagsList:       endpoint(g, question, g.tagsList),
		admin.SubjectTagsGet:        endpoint(g, question, g.tagsGet),
		admin.SubjectTagsCreate:     endpoint(g, change, g.tagsCreate),
		admin.SubjectTagsUpdate:     endpoint(g, change, g.tagsUpdate),
		admin.SubjectTagsAdvance:    endpoint(g, change, g.tagsAdvance),
		admin.SubjectTagsDelete:     endpoint(g, change, g.tagsDelete),
		admin.SubjectTagsReveal:     endpoint(g, question, g.tagsReveal),
		admin.SubjectTagsMissing:    endpoint(g, question, g.tagsMissing),
		admin.SubjectTagsEndLoss:    endpoint(g, change, g.tagsEndLoss),
		admin.SubjectWorkersList:    endpoint(g, question, g.workersList),
		admin.SubjectWorkersRelease: endpoint(g, change, g.workersRelease),
		admin.SubjectClaims:         endpoint(g, question, g.claims),
	}
}

// endpoint is the one edge of the administrative requests: it decodes, calls f, maps the error and
// encodes. f runs outside the callback, because stores take their time. The context of f ends
// before the sender gives up. endpoint refuses a change if it may be so old that its sender has given up. The answer to
// a question does no harm, however old the question is.
func endpoint[Req, Resp any](
	g *Generator, changes bool, f func(context.Context, Req) (Resp, error),
) func(adminRequest) {
	return func(r adminRequest) {
		reply := r.reply
		if !answerable(reply) {
			return
		}
		a := g.answer(AdminKind, NATS)
		now := time.Now()
		age := time.Duration(0)
		if changes {
			age = g.group.pulse.age(now)
		}
		patience, err := readPatience(r.header.Get(wire.HeaderTimeout))
		end := now.Add(patience - age - answerTime(patience))
		if err == nil && !end.After(now) {
			err = errLate
		}
		if err != nil {
			g.refuse(reply, a, g.named(err))
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
			req, err := decode[Req](r.body)
			var resp Resp
			if err == nil && !time.Now().Before(end) { // a process that stood still may not have noticed that ctx is done
				err = errLate
			}
			if err == nil {
				resp, err = f(ctx, req)
			}
			var answer *nats.Msg // of a peer
			if err != nil {
				answer, err = g.passAdmin(ctx, r, changes, g.named(err))
			}
			<-g.adminSlots // before the answer: the sender's next request may come as soon as it has the answer
			switch {
			case err != nil:
				g.refuse(reply, a, err)
				return
			case answer == nil:
				answer = &nats.Msg{Data: wire.Encode(resp)}
			}
			if most := g.cfg.Conn.MaxPayload(); int64(len(answer.Data)) > most {
				g.refuse(reply, a, &bus.Error{Code: 500, Reason: bus.Internal, Message: fmt.Sprintf(
					"the answer has %d bytes, and a NATS message at most %d: raise max_payload", len(answer.Data), most)})
				return
			}
			g.respondMsg(&nats.Msg{Subject: reply, Header: answer.Header, Data: answer.Data})
			g.served(a, 0)
		})
		if !started {
			<-g.adminSlots
			g.refuse(reply, a, g.named(allocator.ErrClosed))
		}
	}
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

// errLate is the error of a request that came so late that its sender may have given up.
var errLate = &bus.Error{Code: 503, Reason: bus.Draining, Message: "it stood still or was cut off when this request came, " +
	"or the request's timeout is too short: nothing was done, send it again"}
