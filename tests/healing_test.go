package tests

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/tests/mariadb"
)

// regression is the body of the alert that the database went backwards.
type regression struct {
	Node, Tag, Store, Action string
	Got, Seen, First, Last   bus.ID
}

// healed waits until an episode is over in which the database went backwards: from the alert number known
// on, there is at least one, and none by the same generator twice. A generator raises the number to what was
// claimed when it asked. If another one just then claims what it reserved before, that one raises it once more.
// It returns how many alerts there are by now.
func healed(t *testing.T, nc *nats.Conn, tag string, known int) int {
	t.Helper()
	js := jetStream(t, nc)
	var alerts []regression
	testkit.Eventually(t, "alerts that are over", func() bool {
		ended := 0
		for _, e := range allEvents[episode](t, js, "leaf.events.info.segment.recovered."+tag) {
			if e.Episode == "regressed" {
				ended++
			}
		}
		alerts = allEvents[regression](t, js, "leaf.events.alert.segment.regressed."+tag)
		return len(alerts) > known && len(alerts) == ended
	})
	by := make(map[string]bool)
	for _, a := range alerts[known:] {
		if a.Tag != tag || a.Action != "advanced" || a.Store == "" || a.Got >= a.Seen || by[a.Node] {
			t.Errorf("alert %+v, among %+v", a, alerts[known:])
		}
		by[a.Node] = true
	}
	return len(alerts)
}

// noticed waits until generators published that they raised the number of a tag.
func noticed(t *testing.T, nc *nats.Conn, tag string) {
	t.Helper()
	js := jetStream(t, nc)
	testkit.Eventually(t, "an alert that the number of "+tag+" was raised", func() bool {
		if _, err := js.Stream(t.Context(), bus.EventStream); err != nil {
			return false // an election is under way
		}
		for _, a := range allEvents[regression](t, js, "leaf.events.alert.segment.regressed."+tag) {
			if a.Action == "advanced" && a.Got < a.Seen {
				return true
			}
		}
		return false
	})
}

// The database is set back again and again under load. It is raised to what was claimed: service goes on,
// no caller is refused, and each generator publishes at most one alert each time.
func TestDatabaseSetBackUnderLoad(t *testing.T) {
	t.Parallel()
	for name, nodes := range map[string][]string{"one generator": {"one"}, "three generators": {"one", "two", "three"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dsn := mariadb.NewDatabase(t)
			db := openDB(t, dsn)
			url := newNATS(t).ClientURL()
			join(t, url, dsn, nodes, "--tag", "order:500", "--max-step", "1000")
			nc := connect(t, url)
			l := startLoad(t, loadConfig{
				tag: "order", callers: 4, maxBatch: 200, patience: 3 * time.Second, mayGiveUp: true, expected: anyRefusal,
			}, url, url)
			l.more(300)
			alerts := 0
			for range 3 {
				backUp(t, db)
				ahead(t, l, 20_000)
				setBack(t, db)
				ahead(t, l, 20_000)
				alerts = healed(t, nc, "order", alerts)
			}
			l.stop()
			l.agrees(url)
			count, text := l.unanswered()
			t.Log(text)
			if count > 0 {
				t.Error("callers were refused")
			}
		})
	}
}

// ahead waits until IDs come that are so far above the highest one.
func ahead(t *testing.T, l *load, by int64) {
	t.Helper()
	until := l.highest.Load() + by
	testkit.Eventually(t, "higher IDs", func() bool {
		l.checkIDs()
		return l.highest.Load() > until
	})
}
