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

// healed waits until the stream has so many alerts that a tag's number was raised to the ledger, and as
// many events that end them. Only a generator that raised the number publishes an alert.
func healed(t *testing.T, nc *nats.Conn, tag string, episodes int) {
	t.Helper()
	js := jetStream(t, nc)
	var alerts []regression
	ended := 0
	testkit.Eventually(t, "alerts that are over", func() bool {
		alerts = allEvents[regression](t, js, "leaf.events.alert.segment.regressed."+tag)
		ended = 0
		for _, e := range allEvents[episode](t, js, "leaf.events.info.segment.recovered."+tag) {
			if e.Episode == "regressed" {
				ended++
			}
		}
		return len(alerts) >= episodes && ended >= episodes
	})
	for _, a := range alerts {
		if a.Tag != tag || a.Action != "advanced" || a.Store == "" || a.Got >= a.Seen {
			t.Errorf("alert %+v", a)
		}
	}
	if len(alerts) != episodes || ended != episodes {
		t.Errorf("%d alerts and %d ends of them, want %d: %+v", len(alerts), ended, episodes, alerts)
	}
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
// no caller is refused, and there is one alert each time.
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
			for round := range 3 {
				backUp(t, db)
				ahead(t, l, 20_000)
				setBack(t, db)
				ahead(t, l, 20_000)
				healed(t, nc, "order", round+1)
			}
			l.stop()
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
