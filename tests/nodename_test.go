package tests

import (
	"strings"
	"testing"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/tests/zookeeper"
)

// The name of a pod or of a host can be a node's: in events, in the state, in
// ZooKeeper, and in the data folder for the next start.
func TestNodeNames(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"leaf-0", "db1.example.com", "-a.b-"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t, zookeeper.Hosts(t))
			g := embed(t, p.flags("--node", name, "--tag", "order")...)
			if g.node != name {
				t.Fatalf("the ready line names %q", g.node)
			}
			nc := connect(t, g.url)
			granted(t, ask(t, nc, bus.SubjectSnowflake, ""))
			if s := states(t, bus.NewClient(nc), 1); s[0].Node != name {
				t.Errorf("its state is of %q", s[0].Node)
			}
			js := jetStream(t, nc)
			subject := "leaf.events.info.node.started." + name
			lastEvent[bus.NodeEvent](t, js, subject)
			stream, err := js.Stream(t.Context(), bus.EventStream)
			must(t, err)
			msg, err := stream.GetLastMsgForSubject(t.Context(), subject)
			must(t, err)
			event, err := bus.ParseEvent(msg.Subject, msg.Header, msg.Data)
			if body, ok := event.Body.(bus.NodeEvent); err != nil || !ok || event.Key != name || body.Node != name || event.Source != "/leaf/"+name {
				t.Errorf("the event is %+v, %v", event, err)
			}
			children, _, err := p.conn.Children("/leaf/" + p.name + "/leaf_forever")
			if err != nil || len(children) != 1 || !strings.HasPrefix(children[0], name) {
				t.Errorf("the workers in ZooKeeper are %q, %v", children, err)
			}

			g.stop()
			again := g.again(t, p.flags()...)
			if again.node != name {
				t.Errorf("after a restart it is %q", again.node)
			}
			granted(t, ask(t, connect(t, again.url), bus.SubjectSnowflake, ""))
			if children, _, err := p.conn.Children("/leaf/" + p.name + "/leaf_forever"); err != nil || len(children) != 1 {
				t.Errorf("after a restart the workers in ZooKeeper are %q, %v", children, err)
			}
		})
	}
}
