// Package browser looks at pages as people do: in a Chromium without a window, which ends with the test, whatever ends
// that.
package browser

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/leafbus/leafbus/internal/testkit"
)

// Patience is how long a browser may take to start, and a page to do what a test waits for.
const Patience = testkit.Patience

// programEnv is the path of a browser to take in place of the system's.
const programEnv = "LEAF_TEST_CHROMIUM"

// Browser is a running Chromium.
type Browser struct{ ctx context.Context }

// New starts a browser that ends with the test.
func New(tb testing.TB) *Browser {
	tb.Helper()
	path, err := find()
	if err != nil {
		tb.Fatal(err)
	}
	// On Linux chromedp has the system kill a browser whose parent has ended. It also makes a folder for the profile;
	// dir is for what the browser leaves elsewhere.
	life, kill := context.WithCancel(context.Background())
	dir := tb.TempDir()
	allocator, end := chromedp.NewExecAllocator(life, append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(path),
		chromedp.Env("HOME="+dir, "TMPDIR="+dir),
		chromedp.NoSandbox, // which root, and many containers, cannot have
		chromedp.DisableGPU,
		chromedp.WindowSize(1280, 900),
		chromedp.Flag("disable-quic", true),
		chromedp.Flag("disable-component-update", true),
	)...)
	// It lives as long as the context that starts it, so that one has no deadline. Where it does not start, chromedp's
	// own way to end it never returns.
	ctx, stop := chromedp.NewContext(allocator)
	late := time.AfterFunc(Patience, kill)
	err = chromedp.Do(ctx)
	started := late.Stop() && err == nil
	tb.Cleanup(func() {
		if started {
			// One that ends by itself waits for its own processes. Otherwise it is killed.
			patient, cancel := context.WithTimeout(ctx, Patience/4)
			_ = chromedp.Cancel(patient)
			cancel()
			stop()
		}
		kill()
		end()
	})
	if !started {
		tb.Fatalf("%s does not start within %v: %v", path, Patience, err)
	}
	return &Browser{ctx}
}

// find returns the path of a browser.
func find() (string, error) {
	if path := os.Getenv(programEnv); path != "" {
		return path, nil
	}
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", errors.New("neither chromium nor chromium-browser nor google-chrome is there: " +
		"tests/install.sh installs it (make deps), or set " + programEnv + " to the path of one")
}
