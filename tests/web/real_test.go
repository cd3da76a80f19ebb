package web

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/leafbus/leafbus/bus/admin"
	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/tests/kit"
	"github.com/leafbus/leafbus/tests/kit/browser"
	"github.com/leafbus/leafbus/tests/kit/callers"
)

// inMemory is what generators have of the tag order, as look.held has it; how many segments, and the sum of their
// positions.
func inMemory(t *testing.T, c *admin.Client) (text string, segments int, position int64) {
	t.Helper()
	pages, err := c.Buffers(t.Context(), admin.BuffersRequest{Tags: []string{"order"}})
	kit.Must(t, err)
	slices.SortFunc(pages, func(a, b admin.BuffersPage) int { return strings.Compare(a.Node, b.Node) })
	found := []any{}
	for _, page := range pages {
		for _, held := range page.Buffers {
			ranges := [][]string{}
			for _, s := range held.Segments {
				ranges = append(ranges, strings.Fields(fmt.Sprintf("%d %d %d", s.First, s.Last, s.Next)))
				position += int64(s.Next)
			}
			found = append(found, []any{page.Node, fmt.Sprint(held.Left), ranges})
			segments += len(ranges)
		}
	}
	data, err := json.Marshal(found)
	kit.Must(t, err)
	return string(data), segments, position
}

// The page follows each generator's memory to the ID, and says how fast IDs go. A segment of a million IDs lasts longer
// than the test.
func live(t *testing.T, b *browser.Browser) {
	one := kit.Embed(t, "--node", "one", "--tag", "order:1000000", "--http", "127.0.0.1:0")
	kit.Join(t, one.URL, "--node", "two")
	nc := kit.Connect(t, one.URL)
	c := admin.NewClient(nc)
	testkit.Eventually(t, "two segments at both generators", func() bool {
		_, err := nc.Request("leaf.segment.order", []byte("30000"), kit.Patience)
		kit.Must(t, err)
		_, segments, _ := inMemory(t, c)
		return segments == 4
	})
	tab := look(b.Open(t), one.HTTP)
	load := callers.New(t, callers.Config{Tags: []string{"order"}, Batch: 10}).All(one.URL, one.HTTP)
	open(tab, "order")
	// Positions only grow, so that of the page lies between two that generators say.
	_, _, before := inMemory(t, c)
	tab.Await("positions that are not old", fmt.Sprintf(`look.position('order') >= %d`, before))
	page := browser.Eval[int64](tab, `look.position('order')`)
	if _, _, after := inMemory(t, c); page > after {
		t.Errorf("the page is at %d, and the generators at %d", page, after)
	}
	tab.Await("the rate", `look.number('#rate-ids') > 0`)
	load.Stop()
	testkit.Eventually(t, "the page to show what the generators hold", func() bool {
		text, _, _ := inMemory(t, c)
		return browser.Eval[string](tab, `look.held('order')`) == text
	})
	var record struct {
		MaxID string `json:"max_id"`
	}
	kit.Must(t, json.Unmarshal([]byte(kit.LeafOK(t, "tag", "show", "order", "--json", "-s", one.URL)), &record))
	tab.Await("max_id "+record.MaxID, `look.number('#tags [data-name="max_id"] .figure-value') === `+record.MaxID)
	asksOnly(t, tab, one.HTTP)
	tab.Picture("live")
}

// Where a token is wanted, the browser that has it gets the page and all that the page asks for, and others get
// nothing. The page's policy holds what would be injected.
func token(t *testing.T, b *browser.Browser) {
	g := kit.Embed(t, "--node", "one", "--tag", "order", "--http", "127.0.0.1:0",
		"--http-token", "caller", "--http-admin-token", "s3cret")
	for _, path := range []string{"", "dashboard/app.js", "dashboard/overview", "dashboard/tags", "dashboard/busiest", "dashboard/events"} {
		for _, token := range []string{"", "caller"} {
			r, err := http.NewRequest(http.MethodGet, g.HTTP+"/"+path, nil)
			kit.Must(t, err)
			r.SetBasicAuth("operator", token)
			answer, err := http.DefaultClient.Do(r)
			kit.Must(t, err)
			answer.Body.Close()
			if answer.StatusCode != http.StatusUnauthorized {
				t.Errorf("%s with the token %q: %s", path, token, answer.Status)
			}
		}
	}
	for name, address := range map[string]string{
		"asked":      g.HTTP, // by the browser
		"in address": strings.Replace(g.HTTP, "://", "://operator:s3cret@", 1),
	} {
		tab := b.Open(t)
		if name == "asked" {
			tab.SignIn("operator", "s3cret")
		}
		look(tab, address)
		tab.Await("the generator", `look.one('#generators [data-node="one"]')`)
		open(tab, "order")
		says(tab, "#events", "tag created")
		tab.Expect("Content Security Policy")
		if browser.Eval[bool](tab, `look.inject()`) {
			t.Error("a script runs that is none of the page's files")
		}
		if !browser.Eval[bool](tab, `fetch('http://192.0.2.1/').then(() => false, () => true)`) {
			t.Error("the page can be read by others")
		}
	}
}
