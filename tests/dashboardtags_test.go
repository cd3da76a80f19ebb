package tests

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/leafbus/leafbus/tests/browser"
	"github.com/leafbus/leafbus/tests/mariadb"
)

const (
	tagsOfPage = 50                                                                             // tags of a page at most
	tagNames   = `[...document.querySelectorAll('#tags [data-tag]')].map((e) => e.dataset.tag)` // that are shown
)

// awaitTags waits until the page shows exactly these tags.
func awaitTags(t *testing.T, tab *browser.Tab, want ...string) {
	t.Helper()
	names, err := json.Marshal(append([]string{}, want...))
	must(t, err)
	tab.Await(fmt.Sprintf("%d tags", len(want)), fmt.Sprintf(`JSON.stringify(%s) === '%s'`, tagNames, names))
}

// notes waits until the page says this of the tags that it shows.
func notes(tab *browser.Tab, text string) {
	tab.Await(text, fmt.Sprintf("document.querySelector('#tags-note').textContent === %q", text))
}

// However many tags there are, those that are looked for are found, and the
// browser has only a page of them to bear.
func searchesManyTags(t *testing.T, b *browser.Browser) {
	dsn := mariadb.NewDatabase(t)
	g := withHTTP(t, "--mysql", dsn)
	const many = 100_000
	execute(t, openDB(t, dsn), fmt.Sprintf("INSERT INTO leaf_alloc (biz_tag, max_id, step) SELECT CONCAT('tag.', LPAD(seq, 6, '0')), 1, 1000 FROM seq_1_to_%d", many))
	var all, matching []string
	for i := range many {
		name := fmt.Sprintf("tag.%06d", i+1)
		all = append(all, name)
		if strings.Contains(name, "0777") {
			matching = append(matching, name)
		}
	}
	pages := slices.Collect(slices.Chunk(matching, tagsOfPage))
	if len(pages) < 3 {
		t.Fatalf("%d pages", len(pages))
	}

	nc := connect(t, g.url)
	granted(t, ask(t, nc, "leaf.segment.tag.090009", "")) // the one that is in memory
	tab := look(t, b, g)
	tab.Do(chromedp.Evaluate[chromedp.Void](`
		window.most = { tags: 0, elements: 0 };
		new MutationObserver(() => {
			most.tags = Math.max(most.tags, document.querySelectorAll('#tags [data-tag]').length);
			most.elements = Math.max(most.elements, document.querySelectorAll('*').length);
		}).observe(document.body, { childList: true, subtree: true });`))
	tab.Await("the tag in memory", tagNames+`.includes('tag.090009')`)

	tab.Await("its record, which is on a page that nobody looks at", `((figure) => figure('max_id') === '1,001' && figure('Step') === '1,000')(
		(name) => document.querySelector('#tags [data-tag="tag.090009"] [data-name="' + name + '"] .figure-value').textContent)`)

	typeIn(tab, "#search", "0777")
	awaitTags(t, tab, pages[0]...)
	notes(tab, fmt.Sprintf("The first %d tags with “0777”; more on the next page", tagsOfPage))
	for i, page := range pages[1:] {
		tab.Do(chromedp.Click(chromedp.CSS("#tags-next")))
		awaitTags(t, tab, page...)
		note, first := "", (i+1)*tagsOfPage
		if i+2 < len(pages) {
			note = "; more on the next page"
		}
		notes(tab, fmt.Sprintf("Tags %d to %d with “0777”, from %s%s", first+1, first+len(page), page[0], note))
	}
	if browser.Eval[bool](tab, `document.querySelector('#tags-next').checkVisibility() && !document.querySelector('#tags-next').disabled`) {
		t.Error("there is a page after the last one")
	}
	for _, page := range slices.Backward(pages[:len(pages)-1]) {
		tab.Do(chromedp.Click(chromedp.CSS("#tags-previous")))
		awaitTags(t, tab, page...)
	}
	typeIn(tab, "#search", "tag.") // all of them
	awaitTags(t, tab, all[:tagsOfPage]...)
	tab.Do(chromedp.Click(chromedp.CSS("#tags-next")))
	awaitTags(t, tab, all[tagsOfPage:2*tagsOfPage]...)
	typeIn(tab, "#search", "000007") // which stands before the page that is shown
	awaitTags(t, tab, "tag.000007")
	typeIn(tab, "#search", "nothing like it")
	awaitTags(t, tab)
	tab.Await("a word for that", `document.querySelector('#tags-note').textContent.trim()`)
	typeIn(tab, "#search", "")
	tab.Await("the tag in memory", tagNames+`.includes('tag.090009')`)

	type counts struct{ Tags, Elements int }
	most := browser.Eval[counts](tab, "({ Tags: most.tags, Elements: most.elements })")
	if most.Tags != tagsOfPage || most.Elements > 5000 {
		t.Errorf("the page has had %+v", most)
	}
}

// Nothing that somebody wrote into the store, and no name, is more than text.
func escapesNames(t *testing.T, b *browser.Browser) {
	const (
		name        = `<img src=x onerror=alert(1)>`
		script      = `<script>document.title='x'</script>`
		description = `<b onclick="alert(2)">bold</b>` + script
	)
	dsn := mariadb.NewDatabase(t)
	execute(t, openDB(t, dsn), leafScripts["description"], fmt.Sprintf(
		"INSERT INTO leaf_alloc (biz_tag, max_id, step, description) VALUES ('%s', 1, 10, '%s'), ('fine', 1, 10, '%s')",
		strings.ReplaceAll(name, "'", "''"), strings.ReplaceAll(script, "'", "''"), strings.ReplaceAll(description, "'", "''")))
	g := withHTTP(t, "--mysql", dsn)
	nc := connect(t, g.url)
	granted(t, ask(t, nc, "leaf.segment.fine", ""))
	tab := look(t, b, g)
	leafOK(t, "tag", "add", "told", "--description", description, "-s", g.url) // which is an event

	shows := func(tag, text string) {
		t.Helper()
		tab.Await("the row of "+tag, fmt.Sprintf(`[...document.querySelectorAll('#tags [data-tag]')].filter((e) => e.dataset.tag === %q).map((e) => { e.open = true; return e; }).length`, tag))
		// The answer to a search may replace the row that was opened.
		tab.Await(text+" at "+tag, fmt.Sprintf(`[...document.querySelectorAll('#tags [data-tag]')].some((e) => e.dataset.tag === %q && (e.open = true) && e.innerText.includes(%q))`, tag, text))
	}
	for _, text := range []string{"", "<img"} {
		typeIn(tab, "#search", text)
		shows(name, name)
		shows(name, script)
	}
	typeIn(tab, "#search", "fine")
	shows("fine", description)
	tab.Await("the event", fmt.Sprintf(`document.querySelector('#events [data-type="leaf.tag.created"][data-key="told"]')?.innerText.includes(%q)`, description))
	typeIn(tab, "#decode-id", name+kb.Enter)
	tab.Await("that it is no snowflake", `document.querySelector('#decode-result').textContent.trim()`)

	if found := browser.Eval[int](tab, `document.querySelectorAll('main img, main script, main b').length`); found > 0 {
		t.Errorf("%d elements came of text", found)
	}
	if title := browser.Eval[string](tab, "document.title"); !strings.Contains(title, "Leafbus") {
		t.Errorf("the title is %q", title)
	}

	// And if text became an element one day, the page's policy would hold it.
	tab.Expect("Content Security Policy")
	tab.Do(chromedp.Evaluate[chromedp.Void](`
		const injected = document.createElement('script');
		injected.textContent = 'window.injected = true';
		document.head.append(injected);
		const button = document.createElement('button');
		button.setAttribute('onclick', 'window.injected = true');
		button.click();`))
	if browser.Eval[bool](tab, "Boolean(window.injected)") {
		t.Error("a script runs that is none of the page's files")
	}
	if !browser.Eval[bool](tab, `fetch('http://192.0.2.1/').then(() => false, () => true)`) || len(tab.Complaints()) > 0 {
		t.Errorf("the page can tell others: %v", tab.Complaints())
	}
}
