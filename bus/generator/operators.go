package generator

import (
	"errors"
	"os"

	"github.com/nats-io/nats.go/micro"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/admin"
	"github.com/leafbus/leafbus/bus/internal/wire"
)

// forOperators makes what operators ask.
func (g *Generator) forOperators(embedded bool) {
	passing := &passing{g.cfg.Conn, g.group, g.membership.installation}
	g.workers = &workerAdmin{
		cfg: &g.cfg, flakes: g.flakes, group: g.group, notJoined: g.notJoined, peersKnown: g.peersKnown,
		send: g.send, publish: g.publish,
	}
	losses := &lossAdmin{cfg: &g.cfg, alloc: g.alloc, group: g.group, exchange: g.exchange, workers: g.workers}
	g.tags = &tagAdmin{
		cfg: &g.cfg, alloc: g.alloc, group: g.group, exchange: g.exchange, passing: passing, publish: g.publish}
	g.keys = &keyCheck{cfg: &g.cfg, alloc: g.alloc}
	g.state = &state{
		cfg: &g.cfg, made: g.made, embedded: embedded,
		alloc: g.alloc, flakes: g.flakes, group: g.group, publisher: g.publisher,
		counts: &g.counts, segments: g.segments, snowflakes: g.snowflakes, canServe: g.canServe, noWorker: g.noWorker,
		heldBack: g.group.away.waiting.Load, missing: g.missing,
	}
	g.state.host, _ = os.Hostname()
	g.admin = &administration{
		cfg: &g.cfg, passing: passing, requests: &g.requests, slots: make(chan struct{}, maxAdmin), observe: g.observe,
		serving: g.phase.serving.Load, age: g.group.away.age,
		endpoints: []adminEndpoint{
			endpoint(admin.SubjectTagsList, question, g.tags.list),
			endpoint(admin.SubjectTagsGet, question, g.tags.get),
			endpoint(admin.SubjectTagsReveal, question, g.tags.reveal),
			endpoint(admin.SubjectTagsCreate, change, g.tags.create),
			endpoint(admin.SubjectTagsUpdate, change, g.tags.update),
			endpoint(admin.SubjectTagsAdvance, change, g.tags.advance),
			endpoint(admin.SubjectTagsDelete, change, g.tags.delete),
			endpoint(admin.SubjectTagsMissing, question, losses.missing),
			endpoint(admin.SubjectTagsEndLoss, change, losses.end),
			endpoint(admin.SubjectWorkersList, question, g.workers.list),
			endpoint(admin.SubjectWorkersRelease, change, g.workers.release),
			endpoint(admin.SubjectKnown, everyone, losses.known),
			endpoint(admin.SubjectBuffers, everyone, g.state.buffers),
		},
	}
}

// addLeafService adds the service leaf: administration and state, decoding, clocks. Unlike the two services that issue
// IDs it is always there.
func (g *Generator) addLeafService() (micro.Service, error) {
	service, err := micro.AddService(g.cfg.Conn, micro.Config{
		Name: wire.ServiceLeaf, Version: bus.Version(), Description: "Leafbus generator: administration and state",
		QueueGroup: bus.QueueGroup, Metadata: map[string]string{"node": g.cfg.Node}, StatsHandler: g.state.stats,
	})
	if err != nil {
		return nil, err
	}
	return service, errors.Join(g.admin.addTo(service),
		service.AddEndpoint("decode", micro.HandlerFunc(g.decode), micro.WithEndpointSubject(bus.SubjectDecode)),
		service.AddEndpoint("clock", micro.HandlerFunc(g.answerClock), // all generators answer it
			micro.WithEndpointSubject(bus.SubjectClock), micro.WithEndpointQueueGroupDisabled()))
}
