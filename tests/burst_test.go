package tests

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/allocator/allocatortest"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/audit"
	"github.com/leafbus/leafbus/tests/mariadb"
)

// burst asks for IDs of every tag at once, and waits for all answers. checkers has one of each tag.
func burst(t *testing.T, nc *nats.Conn, body string, checkers []allocatortest.Checker) {
	t.Helper()
	inbox := nats.NewInbox()
	answers, err := nc.SubscribeSync(inbox + ".*")
	must(t, err)
	defer answers.Unsubscribe()
	began := time.Now()
	for i := range checkers {
		must(t, nc.PublishRequest(fmt.Sprintf("leaf.segment.t%d", i), fmt.Sprintf("%s.%d", inbox, i), []byte(body)))
	}
	refused := make(map[string]int)
	for range checkers {
		msg, err := answers.NextMsg(patience)
		must(t, err)
		if len(msg.Header) > 0 {
			refused[refusal(t, msg).Reason]++
			continue
		}
		ranges, err := bus.ParseReply(msg.Data)
		must(t, err)
		var i int
		_, err = fmt.Sscan(msg.Subject[strings.LastIndexByte(msg.Subject, '.')+1:], &i)
		must(t, err)
		checkers[i].Add(ranges...)
	}
	t.Logf("%d tags in %v", len(checkers), time.Since(began).Round(time.Millisecond))
	if len(refused) > 0 {
		t.Errorf("tags were refused: %v", refused)
	}
}

// Many tags are used for the first time at once, and then the database is one that knows nothing of that.
// A generator begins with an empty folder: alone, or beside those that handed out the IDs.
func TestBurstThenStaleDatabase(t *testing.T) {
	t.Parallel()
	tags := 3000
	if raceEnabled {
		tags = 500
	}
	for name, alone := range map[string]bool{"peers live": false, "peers died": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dsn := mariadb.NewDatabase(t)
			db := openDB(t, dsn)
			var rows []string
			for i := range tags {
				rows = append(rows, fmt.Sprintf("('t%d', 1, 10)", i))
			}
			execute(t, db, leafScripts["description"], "INSERT INTO leaf_alloc (biz_tag, max_id, step) VALUES "+strings.Join(rows, ", "))
			url := newNATS(t).ClientURL()
			args := []string{"--max-step", "10", "--max-wait", "1m"} // longer than the answers of a slow machine take
			generators := join(t, url, dsn, []string{"fresh", "second", "third"}, args...)
			nc := connect(t, url)
			checkers := make([]allocatortest.Checker, tags)
			backUp(t, db)
			burst(t, nc, "", checkers)

			args = append(args, "--mysql", dsn, "--node")
			for node, g := range generators {
				if alone || node == "fresh" {
					g.kill()
					must(t, os.RemoveAll(g.folder))
				}
			}
			setBack(t, db)
			for node, g := range generators {
				if alone || node == "fresh" {
					g.again(t, append(args, node)...)
				}
			}
			for range 3 {
				burst(t, nc, "10", checkers)
			}
			twice := 0
			var taken audit.Taken
			for i := range checkers {
				if _, err := checkers[i].Check(); err != nil {
					twice++
					if twice < 4 {
						t.Errorf("t%d: %v", i, err)
					}
				}
				taken.Add(fmt.Sprint("t", i), checkers[i].Ranges()...)
			}
			if twice > 0 {
				t.Errorf("%d of %d tags have an ID that came twice", twice, tags)
			}
			auditAgrees(t, url, audit.Options{Taken: &taken})
		})
	}
}
