package generator

import (
	"errors"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/internal/wire"
	"github.com/nats-io/nats.go/micro"
)

// leafService is the service leaf of a generator: administration and state, decoding, clocks.
// Unlike the two that issue IDs it is always there.
type leafService struct{ micro.Service }

func (s *leafService) start(g *Generator) error {
	service, err := micro.AddService(g.cfg.Conn, micro.Config{
		Name:         wire.ServiceLeaf,
		Version:      bus.Version,
		Description:  "Leafbus generator: administration and state",
		QueueGroup:   bus.QueueGroup,
		Metadata:     map[string]string{"node": g.cfg.Node},
		StatsHandler: g.stats,
	})
	if err != nil {
		return err
	}
	s.Service = service
	for name, e := range map[string]struct {
		subject string
		handler micro.Handler
	}{
		"tags-list":       {bus.SubjectTagsList, endpoint(g, g.tagsList)},
		"tags-get":        {bus.SubjectTagsGet, endpoint(g, g.tagsGet)},
		"tags-create":     {bus.SubjectTagsCreate, change(g, g.tagsCreate)},
		"tags-update":     {bus.SubjectTagsUpdate, change(g, g.tagsUpdate)},
		"tags-delete":     {bus.SubjectTagsDelete, change(g, g.tagsDelete)},
		"workers-list":    {bus.SubjectWorkersList, endpoint(g, g.workersList)},
		"workers-release": {bus.SubjectWorkersRelease, change(g, g.workersRelease)},
		"decode":          {bus.SubjectDecode, micro.HandlerFunc(g.decode)},
	} {
		err = errors.Join(err, service.AddEndpoint(name, e.handler, micro.WithEndpointSubject(e.subject)))
	}
	// Asked of all generators, and so of no queue group.
	return errors.Join(err,
		service.AddEndpoint("clock", micro.HandlerFunc(g.answerClock),
			micro.WithEndpointSubject(bus.SubjectClock), micro.WithEndpointQueueGroupDisabled()),
		service.AddEndpoint(wire.StatsEndpoint, endpoint(g, g.buffers),
			micro.WithEndpointSubject(bus.SubjectBuffers), micro.WithEndpointQueueGroupDisabled()))
}

func (s *leafService) stop() error {
	if s.Service == nil {
		return nil
	}
	return s.Stop()
}
