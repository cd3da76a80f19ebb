package tests

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/internal/testkit"
)

// losses counts the alerts about lost generators in the stream, and their ends, as "alerts ends".
func losses(t *testing.T, js jetstream.JetStream) string {
	t.Helper()
	stream, err := js.Stream(t.Context(), bus.EventStream)
	must(t, err)
	info, err := stream.Info(t.Context(), jetstream.WithSubjectFilter("leaf.events.*.node.>"))
	must(t, err)
	var alerts, ends uint64
	for subject, n := range info.State.Subjects {
		switch {
		case strings.HasPrefix(subject, "leaf.events.alert.node.lost."):
			alerts += n
		case strings.HasPrefix(subject, "leaf.events.info.node.recovered."):
			ends += n
		}
	}
	return fmt.Sprint(alerts, " ", ends)
}

// seesLost checks what operators see of lost generators: the one of that name, or none if it is empty.
func seesLost(t *testing.T, g *generator, node string) bool {
	t.Helper()
	var nodes, overview struct {
		Nodes []bus.State
		Lost  []bus.LostNode
	}
	var feed struct {
		Causes []struct {
			Kind   string
			Gone   bool
			Alerts []struct{ Key string }
		}
	}
	must(t, json.Unmarshal([]byte(leafOK(t, "nodes", "--json", "-s", g.url)), &nodes))
	must(t, json.Unmarshal([]byte(fetch(t, "GET", g.http+"/dashboard/overview").body), &overview))
	must(t, json.Unmarshal([]byte(fetch(t, "GET", g.http+"/dashboard/feed").body), &feed))
	lasting := ""
	for _, c := range feed.Causes {
		for _, a := range c.Alerts {
			if c.Kind == "leaf.node.lost" && !c.Gone {
				lasting += a.Key
			}
		}
	}
	text, metrics := leafOK(t, "nodes", "-s", g.url), fetch(t, "GET", g.http+"/metrics").body
	if node == "" {
		return len(nodes.Lost) == 0 && len(overview.Lost) == 0 && lasting == "" && !strings.Contains(text, "lost") &&
			strings.Contains(metrics, "\nleaf_lost_nodes 0\n")
	}
	for _, list := range [][]bus.LostNode{nodes.Lost, overview.Lost} {
		if len(list) != 1 || list[0].Node != node || list[0].SilentMS < 4000 || list[0].SilentMS > patience.Milliseconds() ||
			list[0].UntilMS < time.Now().UnixMilli() {
			return false
		}
	}
	return len(nodes.Nodes) > 0 && lasting == node && strings.Contains(text, "lost, last heard ") && strings.Contains(text, strings.TrimPrefix(g.http, "http://")+" ") &&
		strings.Contains(metrics, "\nleaf_lost_nodes 1\n")
}

// Of three generators one is killed. The stream has one alert, and one end when the generator returns. One that is stopped
// raises no alert.
func TestLostGenerator(t *testing.T) {
	t.Parallel()
	url := newNATS(t).ClientURL()
	args := func(node string) []string { return []string{"-s", url, "--http", "127.0.0.1:0", "--node", node} }
	a, b, c := serve(t, t.TempDir(), args("a")...), serve(t, t.TempDir(), args("b")...), serve(t, t.TempDir(), args("c.d")...)
	js, client := jetStream(t, connect(t, url)), client(t, url)
	states(t, client, 3)
	serve(t, t.TempDir(), args("stopped")...).stop()
	c.kill()
	killed := time.Now()
	testkit.Eventually(t, "the alert, and that operators see it", func() bool {
		return losses(t, js) == "1 0" && seesLost(t, a, "c.d") && seesLost(t, b, "c.d")
	})
	t.Logf("shown after %v", time.Since(killed))
	if body, ok := lastLost(t, js, "c.d").Body.(bus.LostEvent); !ok || body.Node != "c.d" || body.Worker == nil ||
		killed.Sub(time.UnixMilli(body.LastHeardMS)).Abs() > 5*time.Second {
		t.Errorf("the alert is about %+v, killed at %v", body, killed)
	}
	c.again(t, args("c.d")...)
	testkit.Eventually(t, "the end", func() bool { return losses(t, js) == "1 1" && seesLost(t, a, "") && seesLost(t, b, "") })
	metrics := fetch(t, "GET", a.http+"/metrics").body + fetch(t, "GET", b.http+"/metrics").body
	for _, series := range []string{`severity="alert",type="leaf.node.lost"`, `severity="info",type="leaf.node.recovered"`} {
		if n := strings.Count(metrics, "leaf_events_total{"+series+"} 1\n"); n != 1 {
			t.Errorf("%d generators count the event %s as theirs", n, series)
		}
	}
}

// A generator is lost, and all others are started again. They show the alert, and end it when it is over.
func TestLostGeneratorAfterARestartOfAll(t *testing.T) {
	t.Parallel()
	url := newNATS(t).ClientURL()
	args := func(node string) []string { return []string{"-s", url, "--http", "127.0.0.1:0", "--node", node} }
	js := jetStream(t, connect(t, url))
	serve(t, t.TempDir(), args("first")...).stop() // the stream is there
	publish := func(id, kind, node, body string) {
		t.Helper()
		msg := nats.NewMsg("leaf.events." + kind + "." + node)
		_, what, _ := strings.Cut(kind, ".")
		for name, value := range map[string]string{"ce-id": id, "Nats-Msg-Id": id, "ce-source": "/leaf/gone", "ce-type": "leaf." + what,
			"ce-subject": node, "ce-time": time.Now().UTC().Format(time.RFC3339Nano)} {
			msg.Header[name] = []string{value}
		}
		msg.Data = []byte(body)
		_, err := js.PublishMsg(t.Context(), msg)
		must(t, err)
	}
	now := time.Now().UnixMilli()
	alert := func(node string, until int64) {
		publish("lost."+node, "alert.node.lost", node, fmt.Sprintf(`{"node":%q,"run":"r","last_heard_ms":%d,"until_ms":%d}`, node, now-5000, until))
	}
	alert("c", now+3_600_000)
	publish("stale.c", "info.node.recovered", "c", `{"node":"c","episode":"stale"}`) // the end of another alert
	alert("over", now-1000)
	alert("back", now+3_600_000)
	publish("over.lost.back", "info.node.recovered", "back", `{"node":"back","episode":"lost"}`)
	publish("stale.back", "info.node.recovered", "back", `{"node":"back","episode":"stale"}`)
	a, b := serve(t, t.TempDir(), args("a")...), serve(t, t.TempDir(), args("b")...)
	testkit.Eventually(t, "that they show what lasts, and end what is over", func() bool {
		return losses(t, js) == "3 4" && seesLost(t, a, "c") && seesLost(t, b, "c")
	})
	serve(t, t.TempDir(), args("c")...)
	testkit.Eventually(t, "the end", func() bool { return losses(t, js) == "3 5" && seesLost(t, a, "") && seesLost(t, b, "") })
}

// lastLost is the last alert about a lost generator.
func lastLost(t *testing.T, js jetstream.JetStream, node string) bus.Event {
	t.Helper()
	stream, err := js.Stream(t.Context(), bus.EventStream)
	must(t, err)
	msg, err := stream.GetLastMsgForSubject(t.Context(), "leaf.events.alert.node.lost."+node)
	must(t, err)
	e, err := bus.ParseEvent(msg.Subject, msg.Header, msg.Data)
	must(t, err)
	return e
}
