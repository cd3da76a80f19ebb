package generator

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/admin"
	"github.com/leafbus/leafbus/bus/idspace"
	"github.com/leafbus/leafbus/internal/wire"
)

const (
	// maxAdmin is how many administrative requests are worked on at a time.
	maxAdmin = 64
	// maxAnswerTime is the most of a sender's patience that is kept for the way of the answer.
	maxAnswerTime = 250 * time.Millisecond
)

// administration is the one edge of the requests of leaf.admin:
//
//	start             in the callback: refuses a change that came late, and bounds those at work
//	└── run           in a goroutine of its own, because stores take their time
//	    ├── work      decodes; then tagAdmin, lossAdmin, workerAdmin or state do what is asked
//	    └── passing   asks peers, if the store or the registry is away here
//
// Its methods are safe for concurrent use. It has no lock.
type administration struct {
	*base
	counts    *counts
	passing   *passing
	requests  *tasks // those that are worked on
	slots     chan struct{}
	endpoints []adminEndpoint
}

// adminEndpoint is what answers the requests of one subject.
type adminEndpoint struct {
	subject string
	kind    endpointKind
	work    func(ctx context.Context, body []byte) (any, error)
}

type endpointKind int

const (
	question endpointKind = iota // however old it is, its answer does no harm
	change                       // it is refused if it may be so old that its sender has given up
	everyone                     // a question that each generator answers for itself
)

func endpoint[Req, Resp any](
	subject string, kind endpointKind, f func(context.Context, Req) (Resp, error),
) adminEndpoint {
	return adminEndpoint{subject, kind, func(ctx context.Context, body []byte) (any, error) {
		req, err := decode[Req](body)
		if err != nil {
			return nil, err
		}
		return f(ctx, req)
	}}
}

// name is the name of the request: its subject after leaf.admin.
func (e adminEndpoint) name() string { return strings.TrimPrefix(e.subject, "leaf.admin.") }

// addTo adds the endpoints to a micro service.
func (d *administration) addTo(service micro.Service) (err error) {
	for _, e := range d.endpoints {
		options := []micro.EndpointOpt{micro.WithEndpointSubject(e.subject)}
		if e.kind == everyone {
			options = append(options, micro.WithEndpointQueueGroupDisabled())
		}
		handler := micro.HandlerFunc(func(r micro.Request) {
			msg := &nats.Msg{Subject: r.Subject(), Reply: r.Reply(), Header: nats.Header(r.Headers()), Data: r.Data()}
			d.start(e, msg, e.kind == everyone)
		})
		err = errors.Join(err, service.AddEndpoint(strings.ReplaceAll(e.name(), ".", "-"), handler, options...))
	}
	return err
}

// heard carries out a request that a peer passes on.
func (d *administration) heard(msg *nats.Msg) {
	i := slices.IndexFunc(d.endpoints, func(e adminEndpoint) bool {
		return strings.HasSuffix(msg.Subject, "."+e.name())
	})
	switch {
	case i >= 0 && d.phase.serving.Load():
		d.start(d.endpoints[i], msg, true)
	case answerable(msg.Reply):
		d.refuse(msg.Reply, newAnswer(AdminKind, NATS, ""), d.named(errNotYet))
	}
}

// start begins the work on a request. final: it is not passed on.
func (d *administration) start(e adminEndpoint, msg *nats.Msg, final bool) {
	if !answerable(msg.Reply) {
		return
	}
	a := newAnswer(AdminKind, NATS, "")
	end, err := d.end(e, msg.Header, a.begun)
	if err != nil {
		d.refuse(msg.Reply, a, d.named(err))
		return
	}
	select {
	case d.slots <- struct{}{}:
	default:
		busy := fmt.Errorf("%w: %d administrative requests are in progress", allocator.ErrOverloaded, maxAdmin)
		d.refuse(msg.Reply, a, busy)
		return
	}
	if !d.requests.start(func() {
		answer, err := d.run(e, msg, end, final)
		<-d.slots // before the answer: the sender's next request may come as soon as it has the answer
		if err != nil {
			d.refuse(msg.Reply, a, err)
			return
		}
		d.respond(msg.Reply, a, answer)
	}) {
		<-d.slots
		d.refuse(msg.Reply, a, d.named(allocator.ErrClosed))
	}
}

// end is when the work on a request must end, so that its sender gets the answer before it gives
// up.
func (d *administration) end(e adminEndpoint, header nats.Header, now time.Time) (time.Time, error) {
	patience, err := readPatience(header.Get(wire.HeaderTimeout))
	end := now.Add(patience - answerTime(patience))
	if err == nil && (!end.After(now) || e.kind == change && !d.link.away.settled(now)) {
		err = errLate
	}
	return end, err
}

// run returns the answer to a request.
func (d *administration) run(e adminEndpoint, msg *nats.Msg, end time.Time, final bool) (*nats.Msg, error) {
	ctx, cancel := context.WithDeadline(d.phase.life, end)
	defer cancel()
	if !time.Now().Before(end) { // a process that stood still may not have noticed that ctx is done
		return nil, d.named(errLate)
	}
	resp, err := e.work(ctx, msg.Data)
	if err == nil {
		return &nats.Msg{Data: wire.Encode(resp)}, nil
	}
	failure := d.named(err)
	if final || !isAway(failure) {
		return nil, failure
	}
	return d.passing.pass(ctx, e, msg.Data, failure)
}

func (d *administration) respond(reply string, a Answer, answer *nats.Msg) {
	if most := d.cfg.Conn.MaxPayload(); int64(len(answer.Data)) > most {
		d.refuse(reply, a, newError(bus.Internal,
			"the answer has %d bytes, and a NATS message at most %d: raise max_payload", len(answer.Data), most))
		return
	}
	d.link.send(&nats.Msg{Subject: reply, Header: answer.Header, Data: answer.Data})
	d.counts.observe(a)
}

func (d *administration) refuse(reply string, a Answer, err error) {
	e := toError(err)
	d.link.send(errorMessage(e, reply))
	a.Reason = e.Reason
	d.counts.observe(a)
}

// named returns the error of a request. One that is none of the allocator's is the store's. It
// names this generator if the fault may be its own.
func (d *administration) named(err error) *bus.Error {
	e := *toError(err)
	if e.Reason == bus.Internal {
		e = *toError(fmt.Errorf("%w: %w", allocator.ErrUnavailable, err))
	}
	if e.Code >= 500 {
		e.Message = fmt.Sprintf("generator %s: %s", d.cfg.Node, e.Message)
	}
	return &e
}

// decode reads the JSON of an administrative request. An empty body is {}.
func decode[Req any](data []byte) (Req, error) {
	var req Req
	if data = bytes.TrimSpace(data); len(data) == 0 {
		return req, nil
	}
	if data[0] != '{' {
		return req, badRequest("the body is not a JSON object: %s", idspace.Quote(data))
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&req); err != nil {
		return req, badRequest("the body cannot be read: %s", unreadable(err))
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return req, badRequest("more follows the JSON object")
	}
	var names map[string]json.RawMessage
	_ = json.Unmarshal(data, &names)
	for name := range names { // encoding/json ignores the case of letters
		if strings.Trim(name, "abcdefghijklmnopqrstuvwxyz_") != "" {
			return req, badRequest("unknown field %s: names are in small letters", idspace.Quote(name))
		}
	}
	return req, nil
}

// unreadable says in the words of JSON why a body cannot be read.
func unreadable(err error) string {
	wrong, ok := errors.AsType[*json.UnmarshalTypeError](err)
	if !ok {
		return strings.TrimPrefix(err.Error(), "json: ")
	}
	want := "an object"
	switch wrong.Type.Kind() {
	case reflect.Int, reflect.Int64:
		want = "a whole number"
	case reflect.String, reflect.Pointer: // a time such as 15m
		want = "a string"
	case reflect.Bool:
		want = "true or false"
	case reflect.Slice:
		want = "a list"
	}
	return fmt.Sprintf("%s is a %s, not %s", wrong.Field[strings.LastIndexByte(wrong.Field, '.')+1:], wrong.Value, want)
}

// maxPage is the most entries of a list.
const maxPage = 1000

// pageLimit returns the page's limit, or an error.
func pageLimit(limit int) (int, error) {
	if limit < 0 || limit > maxPage {
		return 0, badRequest("limit is %d, not from 1 to %d", limit, maxPage)
	}
	return cmp.Or(limit, maxPage), nil
}

// pageQuery asks for the page and one entry more, which shows that the page is not the last.
func pageQuery(p admin.PageRequest, limit int) allocator.Query {
	return allocator.Query{Prefix: p.Prefix, Contains: p.Contains, After: p.After, Limit: limit + 1}
}

// fit returns how many of the entries fit into one reply: at most limit.
func fit[T any](conn *nats.Conn, entries []T, limit int) int {
	room := int(conn.MaxPayload()) - 1024 // for what is around the entries
	for i, e := range entries {
		if room -= len(wire.Encode(e)) + 1; i == limit || room < 0 && i > 0 {
			return i
		}
	}
	return len(entries)
}

// readPatience returns how long a sender waits, from the header wire.HeaderTimeout.
func readPatience(header string) (time.Duration, error) {
	if header == "" {
		return wire.DefaultTimeout, nil
	}
	ms, err := strconv.ParseUint(header, 10, 32)
	if err != nil {
		return 0, badRequest("the header %s is %s, not a number of milliseconds",
			wire.HeaderTimeout, idspace.Quote(header))
	}
	return min(time.Duration(ms)*time.Millisecond, wire.MaxAdminTimeout), nil
}

// answerTime is how much of a sender's patience is kept for the way of the answer.
func answerTime(patience time.Duration) time.Duration { return min(patience/10, maxAnswerTime) }

// errLate is the error of a request that came so late that its sender may have given up.
var errLate = newError(bus.Draining, "it stood still or was cut off when this request came, "+
	"or the request's timeout is too short: nothing was done, send it again")

// endpoints are the requests of leaf.admin.
func endpoints(t *tagAdmin, l *lossAdmin, w *workerAdmin, s *state) []adminEndpoint {
	return []adminEndpoint{
		endpoint(admin.SubjectTagsList, question, t.list),
		endpoint(admin.SubjectTagsGet, question, t.get),
		endpoint(admin.SubjectTagsReveal, question, t.reveal),
		endpoint(admin.SubjectTagsCreate, change, t.create),
		endpoint(admin.SubjectTagsUpdate, change, t.update),
		endpoint(admin.SubjectTagsAdvance, change, t.advance),
		endpoint(admin.SubjectTagsDelete, change, t.delete),
		endpoint(admin.SubjectTagsMissing, question, l.missing),
		endpoint(admin.SubjectTagsEndLoss, change, l.end),
		endpoint(admin.SubjectWorkersList, question, w.list),
		endpoint(admin.SubjectWorkersRelease, change, w.release),
		endpoint(admin.SubjectNodesForget, change, w.forget),
		endpoint(admin.SubjectKnown, everyone, l.known),
		endpoint(admin.SubjectBuffers, everyone, s.buffers),
	}
}

// decode answers leaf.decode.
func (g *Generator) decode(r micro.Request) {
	if !answerable(r.Reply()) {
		return
	}
	a := newAnswer(AdminKind, NATS, "")
	decoded, err := g.Decode(string(bytes.TrimSpace(r.Data())))
	if err != nil {
		g.admin.refuse(r.Reply(), a, err)
		return
	}
	g.admin.respond(r.Reply(), a, &nats.Msg{Data: wire.Encode(decoded)})
}

// addLeafService adds the service leaf: administration and state, decoding, clocks. Unlike the two
// services that issue IDs it is always there.
func (g *Generator) addLeafService() (micro.Service, error) {
	service, err := micro.AddService(g.cfg.Conn, micro.Config{
		Name: wire.ServiceLeaf, Version: wire.Version(), Description: "Leafbus generator: administration and state",
		QueueGroup: wire.QueueGroup, Metadata: map[string]string{"node": g.cfg.Node}, StatsHandler: g.state.stats,
	})
	if err != nil {
		return nil, err
	}
	return service, errors.Join(g.admin.addTo(service),
		service.AddEndpoint("decode", micro.HandlerFunc(g.decode), micro.WithEndpointSubject(wire.SubjectDecode)),
		service.AddEndpoint("clock", micro.HandlerFunc(g.flakes.answerClock), // all generators answer it
			micro.WithEndpointSubject(wire.SubjectClock), micro.WithEndpointQueueGroupDisabled()))
}
