package generator

import (
	"bytes"
	"errors"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/leafbus/leafbus/bus/admin"
	"github.com/leafbus/leafbus/internal/wire"
)

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

// addLeafService adds the service leaf: administration and state, decoding, clocks. Unlike the two services that issue
// IDs it is always there.
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
