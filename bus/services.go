package bus

import (
	"errors"

	"github.com/nats-io/nats.go/micro"
)

// services is the service leaf of a generator, which is always there:
// administration and state, decoding, clocks.
type services struct{ leaf micro.Service }

func (s *services) start(g *Generator) error {
	service, err := micro.AddService(g.cfg.Conn, micro.Config{
		Name:         serviceLeaf,
		Version:      Version,
		Description:  "Leafbus generator: administration and state",
		QueueGroup:   QueueGroup,
		Metadata:     map[string]string{"node": g.cfg.Node},
		StatsHandler: g.stats,
	})
	if err != nil {
		return err
	}
	s.leaf = service
	for name, e := range map[string]struct {
		subject string
		handler micro.Handler
	}{
		"tags-list":       {SubjectTagsList, endpoint(g, g.tagsList)},
		"tags-get":        {SubjectTagsGet, endpoint(g, g.tagsGet)},
		"tags-create":     {SubjectTagsCreate, change(g, g.tagsCreate)},
		"tags-update":     {SubjectTagsUpdate, change(g, g.tagsUpdate)},
		"tags-delete":     {SubjectTagsDelete, change(g, g.tagsDelete)},
		"workers-list":    {SubjectWorkersList, endpoint(g, g.workersList)},
		"workers-release": {SubjectWorkersRelease, change(g, g.workersRelease)},
		"decode":          {SubjectDecode, micro.HandlerFunc(g.decode)},
	} {
		err = errors.Join(err, service.AddEndpoint(name, e.handler, micro.WithEndpointSubject(e.subject)))
	}
	// Asked of all generators, and so of no queue group.
	return errors.Join(err,
		service.AddEndpoint("clock", micro.HandlerFunc(g.tellClock),
			micro.WithEndpointSubject(SubjectClock), micro.WithEndpointQueueGroupDisabled()),
		service.AddEndpoint(statsEndpoint, endpoint(g, g.buffers),
			micro.WithEndpointSubject(SubjectBuffers), micro.WithEndpointQueueGroupDisabled()))
}

func (s *services) stop() error {
	if s.leaf == nil {
		return nil
	}
	return s.leaf.Stop()
}
