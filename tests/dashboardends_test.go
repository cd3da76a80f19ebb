package tests

import (
	"fmt"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/tests/browser"
)

// A rare tag is on no page that is here, and not among the most used. If its IDs end, it is listed all the same, with what all
// generators have of it.
func showsWhatEndsSoonest(t *testing.T, b *browser.Browser) {
	url := newNATS(t).ClientURL()
	var args []string
	for i := range 70 {
		args = append(args, "--tag", fmt.Sprintf("busy.%02d:100000", i))
	}
	first := serve(t, t.TempDir(), append(args, "-s", url, "--node", "one", "--http", "127.0.0.1:0", "--max-wait", "2s", "--tag", "zz.rare:10", "--max-step", "100000")...)
	serve(t, t.TempDir(), "-s", url, "--node", "two", "--max-wait", "2s", "--max-step", "100000")
	nc := connect(t, url)
	filled(t, nc, "zz.rare", 2, "1")
	for i := range 70 {
		granted(t, ask(t, nc, fmt.Sprintf("leaf.segment.busy.%02d", i), "5000"))
	}
	breakStore(t, jetStream(t, nc), true)
	testkit.Eventually(t, "refills of the rare tag that fail", func() bool {
		_ = ask(t, nc, "leaf.segment.zz.rare", "1")
		held := askBuffers(t, nc, "zz.rare", 2)
		return held["one"].State == "failing" && held["two"].State == "failing"
	})
	for node, state := range map[string]bus.State{"one": states(t, bus.NewClient(nc), 2)[0], "two": states(t, bus.NewClient(nc), 2)[1]} {
		if len(state.Ending) != 1 || state.Ending[0].Tag != "zz.rare" || len(state.Busiest) > 20 {
			t.Errorf("%s says that these end: %+v", node, state.Ending)
		}
	}
	tab := look(t, b, first, chromedp.EmulateViewport(1280, 900))
	left := int64(0)
	for _, held := range askBuffers(t, nc, "zz.rare", 2) {
		left += held.Left
	}
	tab.Await("the tag, and what both have", fmt.Sprintf(`((end) => end?.dataset.tag === 'zz.rare' && (%d === 0 || end.innerText.includes('%d left at')))(document.querySelector('#ends > li:only-child'))`, left, left))
	testkit.Eventually(t, "no IDs", func() bool { return len(ask(t, nc, "leaf.segment.zz.rare", "1").Header) > 0 })
	tab.Await("that it is empty", `document.querySelector('#ends > li:only-child .bad')?.textContent === 'empty'`)
}
