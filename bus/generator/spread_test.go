package generator

import (
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
)

// Which generator moves, and when. A row is the generators in the order of their runs, each with its server: Ab is
// the generator A at the server b, and Ab! one that cannot move.
func TestWhoMoves(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		rows  string // one each second
		moves string // the generator that may move at the end
		from  string
		alert string // the generator that has the alert at the end
	}{
		"alone":                      {"Aa*60", "", "", ""},
		"too soon":                   {"Aa Ba*10", "", "", ""},
		"all at one":                 {"Aa Ba*11", "A", "a", ""},
		"all at one for long":        {"Aa Ba*31", "A", "a", "A"},
		"nobody can move":            {"Aa! Ba!*31", "", "", "A"},
		"the first cannot move":      {"Aa! Ba*11", "B", "a", ""},
		"the fullest":                {"Ab Ba Ca*11", "B", "a", ""},
		"one each":                   {"Aa Bb Cc*31", "", "", ""},
		"one came":                   {"Aa Ba*20, Aa Ba Ca*10", "", "", ""},
		"one came a while ago":       {"Aa Ba*20, Aa Ba Ca*11", "A", "a", "A"},
		"one moved":                  {"Aa Ba Ca*20, Ab Ba Ca*10", "", "", ""},
		"one moved a while ago":      {"Aa Ba Ca*20, Ab Ba Ca*11", "B", "a", ""},
		"one tried in vain":          {"Aa Ba*11, Aa! Ba*20", "B", "a", "A"},
		"one moved, and came back":   {"Aa Ba*20, Ab Ba*5, Aa Ba*10", "", "", ""},
		"two servers are as full":    {"Ab Bb Ca Da*11", "C", "a", ""},
		"the last one that was lost": {"Aa Bb*20, Aa*31", "", "", ""},
	} {
		for _, self := range []string{"A", "B", "C"} {
			b := &base{group: newGroup(self), link: &link{conn: new(nats.Conn)}}
			s, now := spreading{base: b, after: spreadAfter}, time.Unix(0, 0)
			var own string
			var load map[string]int
			for row := range strings.SplitSeq(c.rows, ", ") {
				row, times, _ := strings.Cut(row, "*")
				d, err := time.ParseDuration(times + "s")
				if err != nil {
					t.Fatal(err)
				}
				var all []heartbeat
				for p := range strings.FieldsSeq(row) {
					all = append(all, heartbeat{ID: p[:1], Node: "node " + p[:1], Server: p[1:2], Stays: p[2:] == "!"})
				}
				for end := now.Add(d); now.Before(end); now = now.Add(time.Second) {
					own, load = s.look(now, all)
				}
			}
			if now = now.Add(-time.Second); (load != nil) != (self == c.moves) || load != nil && own != c.from {
				t.Errorf("%s: %s may move from %q: %v", name, self, own, load)
			}
			if err := s.err(now); (err != nil) != (self == c.alert) {
				t.Errorf("%s: %s has the alert %v", name, self, err)
			}
		}
	}
}

// A generator moves to the server with the fewest, if that has at least two fewer.
func TestEmptiest(t *testing.T) {
	t.Parallel()
	ids := map[string]string{"1:1": "a", "2:2": "b", "3:3": "c"}
	for name, c := range map[string]struct {
		load map[string]int
		ids  map[string]string
		want string
	}{
		"one is empty":           {map[string]int{"a": 2, "b": 1}, ids, "3:3"},
		"two are":                {map[string]int{"a": 2}, ids, "2:2"},
		"two fewer":              {map[string]int{"a": 3, "b": 1, "c": 2}, ids, "2:2"},
		"one fewer":              {map[string]int{"a": 2, "b": 1, "c": 1}, ids, ""},
		"the empty one is down":  {map[string]int{"a": 2, "b": 1}, map[string]string{"1:1": "a", "2:2": "b", "3:3": ""}, ""},
		"no other one is heard":  {map[string]int{"a": 3}, map[string]string{"1:1": "a"}, ""},
		"of a server to be left": {map[string]int{"a": 2}, nil, ""},
	} {
		if got := emptiest("a", c.load, c.ids); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
