package bus

import (
	"context"
	"strconv"
	"time"

	"github.com/nats-io/nats.go/micro"
)

// asideEvery is how often a generator looks whether it should step aside.
const asideEvery = 200 * time.Millisecond

// segments is the service leaf-segment: it answers leaf.segment.<tag>.
//
// It is a service of its own because it comes and goes: NATS prefers near
// generators even when they answer errors, so one that has nothing left while
// its store is away leaves the queue group, as long as it knows of another that
// can serve.
type segments struct {
	g       *Generator
	waiting tasks // the requests that are answered later

	// Owned by Generator.Run.
	service micro.Service // nil: not in the queue group
	sick    time.Time     // since when it cannot serve; zero: it can
}

// open enters the queue group.
func (s *segments) open() error {
	service, err := micro.AddService(s.g.cfg.Conn, micro.Config{
		Name:        serviceSegment,
		Version:     Version,
		Description: "IDs from the segments of a tag",
		QueueGroup:  QueueGroup,
		Metadata:    map[string]string{"node": s.g.cfg.Node},
	})
	if err != nil {
		return err
	}
	for name, subject := range map[string]string{"segment": SubjectSegment + ".>", "no-tag": SubjectSegment} {
		if err := service.AddEndpoint(name, micro.HandlerFunc(s.handle), micro.WithEndpointSubject(subject)); err != nil {
			service.Stop()
			return err
		}
	}
	s.service = service
	return nil
}

// close leaves the queue group. What was received is still answered.
func (s *segments) close() error {
	if s.service == nil {
		return nil
	}
	err := s.service.Stop()
	s.service = nil
	return err
}

// healthy reports whether the store is open, and no tag has run out of IDs
// while it is away.
func (s *segments) healthy() bool {
	_, dry := s.g.alloc.Failing()
	return s.g.prepared.Load() && dry == 0
}

// stepAside leaves the queue group, or enters it again, as the generator's
// state and the other generators' demand.
//
// It leaves only for one that said it can serve after this one said that it
// cannot: of two that fall sick together, both stay.
func (s *segments) stepAside(now time.Time) {
	if healthy := s.healthy(); healthy != s.sick.IsZero() {
		s.sick = time.Time{}
		if !healthy {
			s.sick = now
		}
		s.g.beat(false)
	}
	aside := !s.sick.IsZero() && s.g.presence.segmentElsewhere(now, s.sick)
	switch {
	case aside && s.service != nil:
		s.g.log.Warn("the store is away and a tag has no IDs left: leaving leaf.segment to other generators")
		if err := s.close(); err != nil {
			s.g.log.Error("leaving leaf.segment", "error", err)
		}
	case !aside && s.service == nil:
		if err := s.open(); err != nil {
			s.g.log.Error("entering leaf.segment again", "error", err) // tried again soon
			return
		}
		s.g.log.Info("answering leaf.segment again")
	}
}

// handle answers a request: from memory at once; if it must wait, from a
// goroutine of its own, so that one slow tag holds up no other.
func (s *segments) handle(r micro.Request) {
	reply := r.Reply()
	if reply == "" {
		return // nobody would get the IDs
	}
	req, err := ParseRequest(r.Data())
	if err != nil {
		s.refuse(r, err)
		return
	}
	var few [4]Range // more than two segments' runs are rare
	ranges, waiter, err := s.g.alloc.Request(few[:0], tagOf(r.Subject()), req.Count)
	if err != nil {
		s.refuse(r, err)
		return
	}
	if waiter == nil {
		if err := r.Respond(AppendReply(nil, ranges, req.JSON)); err != nil {
			s.g.log.Debug("IDs are lost: the reply cannot be sent", "error", err) // one for each request that waited in the queue
			return
		}
		s.g.counts.served(req.Count)
		return
	}
	later := func() {
		// The allocator bounds the wait, and ends it when the generator stops.
		ranges, err := waiter.Wait(context.Background())
		if err != nil {
			s.g.refuse(reply, err)
			return
		}
		s.g.respond(reply, AppendReply(nil, ranges, req.JSON))
		s.g.counts.served(req.Count)
	}
	if !s.waiting.start(later) {
		later() // the allocator has stopped, so this does not wait
	}
}

// refuse answers within the callback with an error.
func (s *segments) refuse(r micro.Request, err error) {
	e := toError(err)
	s.g.counts.refused(e.Reason)
	if err := r.Error(strconv.Itoa(e.Code), e.Message, e.body()); err != nil {
		s.g.log.Debug("a reply cannot be sent", "error", err)
	}
}

// tagOf cuts the tag out of leaf.segment.<tag>; it is empty for leaf.segment.
func tagOf(subject string) string {
	if len(subject) <= len(SubjectSegment) {
		return ""
	}
	return subject[len(SubjectSegment)+1:]
}
