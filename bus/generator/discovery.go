package generator

import (
	"crypto/rand"
	"encoding/json"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/leafbus/leafbus/internal/wire"
)

// discovery answers PING, INFO and STATS for a service, as package micro does for its own. A
// service of micro drains when it ends, and cannot leave its queue group for a moment. It lasts
// from an entry into the queue group to the exit.
type discovery struct {
	identity    micro.ServiceIdentity
	description string
	started     time.Time
	queue       *queue // has the statistics
	subs        []*nats.Subscription
}

// discover begins to answer.
func discover(name, description, node string, q *queue) (*discovery, error) {
	d := &discovery{
		identity: micro.ServiceIdentity{
			Name: name, ID: rand.Text(), Version: wire.Version(), Metadata: map[string]string{"node": node}},
		description: description, started: time.Now().UTC(), queue: q,
	}
	answers := map[micro.Verb]func() any{micro.PingVerb: d.ping, micro.InfoVerb: d.info, micro.StatsVerb: d.stats}
	for verb, answer := range answers {
		for _, of := range [][2]string{{}, {name}, {name, d.identity.ID}} {
			subject, err := micro.ControlSubject(verb, of[0], of[1])
			if err == nil {
				var sub *nats.Subscription
				sub, err = q.conn.Subscribe(subject, func(msg *nats.Msg) {
					if body, err := json.Marshal(answer()); err == nil && answerable(msg.Reply) {
						_ = msg.Respond(body) // without an answer the service seems to be away
					}
				})
				d.subs = append(d.subs, sub)
			}
			if err != nil {
				d.end()
				return nil, err
			}
		}
	}
	return d, nil
}

func (d *discovery) ping() any {
	return micro.Ping{ServiceIdentity: d.identity, Type: micro.PingResponseType}
}

func (d *discovery) info() any {
	i := micro.Info{ServiceIdentity: d.identity, Type: micro.InfoResponseType, Description: d.description}
	for _, e := range d.endpoints() {
		i.Endpoints = append(i.Endpoints,
			micro.EndpointInfo{Name: e.Name, Subject: e.Subject, QueueGroup: e.QueueGroup})
	}
	return i
}

func (d *discovery) stats() any {
	return micro.Stats{
		ServiceIdentity: d.identity, Type: micro.StatsResponseType, Started: d.started, Endpoints: d.endpoints()}
}

// endpoints returns what the queue has counted.
func (d *discovery) endpoints() (list []*micro.EndpointStats) {
	d.queue.do(func() {
		for _, e := range d.queue.endpoints {
			e.AverageProcessingTime = e.ProcessingTime / time.Duration(max(e.NumRequests, 1))
			list = append(list, &e)
		}
	})
	return list
}

// end answers no more.
func (d *discovery) end() {
	for _, sub := range d.subs {
		_ = sub.Unsubscribe() // it fails only if the connection is closed
	}
}
