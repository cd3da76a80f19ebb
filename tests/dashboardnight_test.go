package tests

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/tests/browser"
	"github.com/leafbus/leafbus/tests/mariadb"
)

const (
	nightTags = 30
	dryTags   = 4 // of them, those whose IDs are used up; others may be too
	busyTag   = 7 // the one that is used most
)

func nightTag(i int) string { return fmt.Sprintf("shop.%02d", i) }

// night is an installation at 3 a.m.: three generators and thirty tags under load. One generator was killed, then the database died.
type night struct {
	g  *generator // of the two that run
	nc *nats.Conn
}

func newNight(t *testing.T) night {
	t.Helper()
	dsn := mariadb.NewDatabase(t)
	p, there := newProxy(t, dsn)
	url := newNATS(t).ClientURL()
	generators := make(map[string]*generator)
	// gen_2 gets no worker, because gen_1 has it: a lost generator without a worker is shown for an hour, however slow the machine is.
	for _, g := range []struct{ node, worker, lacks string }{{"gen_1", "1", ""}, {"gen_2", "1", "snowflakes"}, {"gen_3", "3", ""}} { // in this order
		generators[g.node] = serveLacking(t, g.lacks, t.TempDir(), "-s", url, "--node", g.node, "--worker-id", g.worker, "--http", "127.0.0.1:0",
			"--mysql", there, "--max-step", "2000")
	}
	n := night{generators["gen_1"], connect(t, url)}
	for i := range nightTags {
		step := 1000
		if i == busyTag { // its IDs last until the end of the test, however slow the machine is
			step = 20_000
		}
		execute(t, openDB(t, dsn), fmt.Sprintf("INSERT INTO leaf_alloc (biz_tag, max_id, step, description) VALUES ('%s', 1, %d, 'orders of shop %d')", nightTag(i), step, i))
	}
	for i := range nightTags {
		testkit.Eventually(t, "two segments of "+nightTag(i)+" at each generator", func() bool {
			granted(t, ask(t, n.nc, "leaf.segment."+nightTag(i), "200"))
			full := 0
			for _, b := range askBuffers(t, n.nc, nightTag(i), 3) {
				if len(b.Segments) == 2 {
					full++
				}
			}
			return full == 3
		})
	}
	generators["gen_2"].kill()
	p.Refuse(true)
	p.Cut()
	for i := range nightTags {
		n.fail(t, nightTag(i), 2, i < dryTags)
	}
	n.load(t)
	return n
}

// fail takes IDs of a tag until its refills fail at all generators that run. With dry it takes all.
func (n night) fail(t *testing.T, tag string, generators int, dry bool) {
	t.Helper()
	testkit.Eventually(t, tag+" to fail", func() bool {
		failing, most := 0, int64(1)
		for _, b := range askBuffers(t, n.nc, tag, generators) {
			most = max(most, b.Left)
			if b.State == "failing" {
				failing++
			}
		}
		if !dry {
			most = 300
		}
		msg := ask(t, n.nc, "leaf.segment."+tag, fmt.Sprint(most))
		return failing == generators && (!dry || most == 1 && len(msg.Header) > 0)
	})
}

// load takes IDs until the test ends: of each tag at another rate, and none of the last one.
func (n night) load(t *testing.T) {
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	t.Cleanup(func() { stop(); <-done })
	go func() {
		defer close(done)
		ticks := time.NewTicker(100 * time.Millisecond)
		defer ticks.Stop()
		for turn := 0; ; turn++ {
			for i := range nightTags - 1 {
				count := "2"
				if i != busyTag {
					if turn%(5+i%7) != 0 {
						continue
					}
					count = "1"
				}
				_ = n.nc.PublishRequest("leaf.segment."+nightTag(i), n.nc.NewInbox(), []byte(count)) // nobody waits for the answer
			}
			select {
			case <-ctx.Done():
				return
			case <-ticks.C:
			}
		}
	}()
}

// An operator opens the page at night. It says what is wrong, the worst first, in few boxes and on few screens.
func TestDashboardAtNight(t *testing.T) {
	t.Parallel()
	b := browser.New(t)
	n := newNight(t)
	for name, c := range map[string]struct {
		scheme  string
		window  browser.Action
		highest int // pixels
	}{
		"night-light":      {"light", chromedp.EmulateViewport(1280, 900), 3000},
		"night-dark":       {"dark", chromedp.EmulateViewport(1440, 900), 3000},
		"night-phone":      {"light", chromedp.EmulateViewport(390, 844, chromedp.EmulateMobile), 6500},
		"night-phone-dark": {"dark", chromedp.EmulateViewport(390, 844, chromedp.EmulateMobile), 6500},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tab := look(t, b, n.g, c.window, browser.Send(emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
				Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: c.scheme}},
			}))
			saysWhatIsWrong(t, tab)
			tab.Await("measured rates", `document.querySelector('#ends .warn')`)
			tab.Await("the busiest tag first", fmt.Sprintf(`%s[0] === %q`, tagNames, nightTag(busyTag)))
			tab.Do(chromedp.Evaluate[chromedp.Void](`scrollTo(0, 0)`))
			if height := browser.Eval[int](tab, `document.documentElement.scrollHeight`); height > c.highest {
				t.Errorf("the page is %d pixels high, more than %d", height, c.highest)
			} else {
				t.Logf("the page is %d pixels high", height)
			}
			const wide = `(({ scrollWidth, clientWidth }) => scrollWidth <= clientWidth ? [] : [scrollWidth + ' > ' + clientWidth,
				...[...document.querySelectorAll('body *')].filter((e) => e.getBoundingClientRect().right > clientWidth).map((e) => e.outerHTML.slice(0, 200))])(document.documentElement)`
			if found := browser.Eval[[]string](tab, wide); len(found) > 0 {
				t.Errorf("the page is wider than its window: %q", found)
			}
			picture(t, tab, name)
		})
	}
}

func saysWhatIsWrong(t *testing.T, tab *browser.Tab) {
	t.Helper()
	tab.Await("that a generator is lost, in amber", `/^gen_2 lost, last heard (\d+ s|\d+ min) ago$/.test(document.querySelector('#verdict [data-state="warn"]')?.textContent)`)
	tab.Await("refusals, in red", `/^Callers are refused, [\d.]+\/s$/.test(document.querySelector('#verdict [data-state="bad"]')?.textContent)`)
	if good := browser.Eval[bool](tab, `Boolean(document.querySelector('#verdict [data-state="good"]')) || !document.querySelector('.main-total.failing')`); good {
		t.Error("something is green beside refusals")
	}
	const box = `document.querySelectorAll('#alerts > li')`
	tab.Await("a box for each cause", box+`.length === 2 && `+box+`[0].dataset.kind === 'mysql' && `+box+`[1].dataset.kind === 'leaf.node.lost'`)
	tab.Await("how far it reaches", fmt.Sprintf(`%s[0].querySelector('summary').textContent === '%d tags, 2 generators: gen_1, gen_3'`, box, nightTags))
	var dry, left int
	tab.Await("whom it harms", box+`[0].innerText.includes(' tags have too few IDs left, and callers are refused. ')`)
	words := browser.Eval[string](tab, box+`[0].innerText`)
	_, words, _ = strings.Cut(words, "No new IDs come from the database. ")
	if _, err := fmt.Sscanf(words, "%d tags have too few IDs left, and callers are refused. %d tags live on the IDs in memory", &dry, &left); err != nil ||
		dry < dryTags || dry+left != nightTags || !strings.Contains(words, "the store is unavailable: ") {
		t.Errorf("the box says %d and %d (%v): %s", dry, left, err, words)
	}
	links := browser.Eval[[]string](tab, `[...document.querySelectorAll('#alerts a')].map((a) => a.href.split('#')[1])`)
	if got := fmt.Sprint(links); got != "[segmentstarved segmentrefill_failed nodelost]" {
		t.Errorf("the boxes lead to %s of the runbook", got)
	}
	tab.Await("the tags that end soonest", fmt.Sprintf(`((ends) => ends.length === 10 && ends.slice(0, %d).every((end) => end.textContent.startsWith('empty') && end.querySelector('.bad'))
		&& ends.slice(%d).every((end) => end.querySelector('.warn, .bad')))([...document.querySelectorAll('#ends > li')])`, dryTags, dryTags))
	const top = `['alerts', 'ends', 'generators', 'tags', 'workers-section', 'events'].map((id) => document.getElementById(id).getBoundingClientRect().top)`
	if !browser.Eval[bool](tab, `((tops) => tops.every((top, i) => i === 0 || top > tops[i - 1]))(`+top+`)`) {
		t.Errorf("the sections are not in order: %v", browser.Eval[[]float64](tab, top))
	}
	tab.Do(chromedp.Click(chromedp.CSS(`#alerts [data-kind="mysql"] summary`)))
	const members = `[...document.querySelectorAll('#alerts [data-kind="mysql"] .member')]`
	tab.Await("the refused tags first", fmt.Sprintf(`((types) => types.length === 50 && types.lastIndexOf('leaf.segment.starved') < types.indexOf('leaf.segment.refill_failed')
		&& types.includes('leaf.segment.starved'))(%s.map((m) => m.dataset.type))`, members))
	tab.Do(chromedp.Click(chromedp.CSS(`#alerts [data-kind="mysql"] summary`)))
}
