package tests

import (
	"bytes"
	"cmp"
	"image"
	"image/color"
	"image/png"
	"os"
	"path/filepath"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"github.com/leafbus/leafbus/tests/browser"
)

// picturesEnv names a folder for pictures of the dashboard, for those who want to
// look for themselves.
const picturesEnv = "LEAF_TEST_SCREENSHOTS"

// picture takes a picture of the whole page.
func picture(t *testing.T, tab *browser.Tab, name string) image.Image {
	t.Helper()
	data := browser.Get(tab, chromedp.FullScreenshot(100))
	dir := cmp.Or(os.Getenv(picturesEnv), t.ArtifactDir())
	must(t, os.MkdirAll(dir, 0o777))
	must(t, os.WriteFile(filepath.Join(dir, name+".png"), data, 0o666))
	found, err := png.Decode(bytes.NewReader(data))
	must(t, err)
	return found
}

// background is the colour that most of a picture has, how light that is from 0
// to 1, and how many colours there are.
func background(picture image.Image) (lightness float64, colours int) {
	counts := make(map[color.Color]int)
	bounds := picture.Bounds()
	for y := bounds.Min.Y; y < bounds.Max.Y; y++ {
		for x := bounds.Min.X; x < bounds.Max.X; x++ {
			counts[picture.At(x, y)]++
		}
	}
	var most color.Color
	for c, n := range counts {
		if n > counts[most] {
			most = c
		}
	}
	return float64(color.Gray16Model.Convert(most).(color.Gray16).Y) / 0xffff, len(counts)
}

// The page is light or dark as the system is, and is on a telephone, too.
func hasLooks(t *testing.T, b *browser.Browser, s site) {
	for name, c := range map[string]struct {
		scheme string
		width  int
		window browser.Action
	}{
		"light": {"light", 1440, chromedp.EmulateViewport(1440, 900)},
		"dark":  {"dark", 1440, chromedp.EmulateViewport(1440, 900)},
		"phone": {"light", 390, chromedp.EmulateViewport(390, 844, chromedp.EmulateMobile)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tab := look(t, b, s.g, c.window, browser.Send(emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
				Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: c.scheme}},
			}))
			tab.Await("all tags", tagNames+".length === 3")
			tab.Await("events", `document.querySelector('#events [data-type]')`)
			tab.Do(chromedp.ScrollIntoView(chromedp.CSS("#workers-note"))) // they are asked for when they are in view
			tab.Await("workers", `document.querySelector('#workers [data-worker]')`)
			tab.Await("a rate", `document.querySelector('#rate-ids').textContent !== '–'`)
			tab.Do(chromedp.Evaluate[chromedp.Void](`scrollTo(0, 0)`))
			found := picture(t, tab, name)
			lightness, colours := background(found)
			if found.Bounds().Dx() != c.width || colours < 20 {
				t.Errorf("the picture is %v with %d colours", found.Bounds(), colours)
			}
			if c.scheme == "light" && lightness < 0.8 || c.scheme == "dark" && lightness > 0.2 {
				t.Errorf("with a system that is %s the lightness is %.2f", c.scheme, lightness)
			}
		})
	}
}
