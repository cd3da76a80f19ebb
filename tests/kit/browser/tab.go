package browser

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/fetch"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// Action is something that a tab does.
type Action = chromedp.Action[chromedp.Void]

// Tab is a window that shares nothing with the others of its [Browser]: neither what is cached nor who is signed in.
// Its methods are for the goroutine of the test; where something goes wrong they end it.
type Tab struct {
	tb          testing.TB
	ctx         context.Context
	credentials *fetch.AuthChallengeResponse // nil: it has none

	mu         sync.Mutex
	addresses  []string
	complaints []string
	expected   []string
}

// Open opens an empty tab until the test ends. What the browser complains of there until then fails the test: see
// [Tab.Expect].
func (b *Browser) Open(tb testing.TB) *Tab {
	tb.Helper()
	t := &Tab{tb: tb}
	var stop context.CancelFunc
	t.ctx, stop = chromedp.NewContext(b.ctx, chromedp.WithNewBrowserContext(), chromedp.WithListener(t.hear))
	tb.Cleanup(func() {
		defer stop()
		if complaints := t.Complaints(); len(complaints) > 0 {
			tb.Errorf("the browser complains:\n%s", strings.Join(complaints, "\n"))
		}
		if tb.Failed() {
			text, err := evaluate[string](t, "document.body.innerText")
			tb.Logf("the page shows (%v):\n%.4000s", err, text)
		}
	})
	// A context that has no tab yet takes the lifetime of its first one from it.
	if err := chromedp.Do(t.ctx); err != nil {
		tb.Fatalf("a tab: %v", err)
	}
	// As if each tab had the only screen: in view, and with the keyboard.
	t.Do(Send(emulation.SetFocusEmulationEnabled, emulation.SetFocusEmulationEnabledParams{Enabled: true}))
	return t
}

// Send is an action of the browser's protocol whose answer does not matter.
func Send[P, R any](command cdp.Command[P, R], params P) Action {
	return chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
		_, err := cdp.Call(ctx, target, command, params)
		return err
	})
}

// hear runs where the browser's messages are read, so it asks the browser nothing.
func (t *Tab) hear(event any) {
	switch e := event.(type) {
	case *network.EventRequestWillBeSent:
		t.mu.Lock()
		t.addresses = append(t.addresses, e.Request.URL)
		t.mu.Unlock()
	case *network.EventLoadingFailed:
		if !e.Canceled { // by the page itself
			t.complain("a request failed: " + e.ErrorText)
		}
	case *runtime.EventExceptionThrown:
		text := e.ExceptionDetails.Text
		if thrown := e.ExceptionDetails.Exception; thrown != nil {
			text += " " + describe(thrown)
		}
		t.complain("an exception: " + text)
	case *runtime.EventConsoleAPICalled:
		if e.Type == runtime.ConsoleAPICalledTypeError || e.Type == runtime.ConsoleAPICalledTypeWarning {
			for _, arg := range e.Args {
				t.complain("the console: " + describe(arg))
			}
		}
	case *log.EventEntryAdded: // answers with an error, the page's policy, what is deprecated
		if e.Entry.Level == log.EntryLevelError || e.Entry.Level == log.EntryLevelWarning {
			t.complain(fmt.Sprintf("%s: %s", e.Entry.Source, e.Entry.Text))
		}
	case *page.EventJavascriptDialogOpening:
		t.complain("a dialog: " + e.Message)
		t.answer(Send(page.HandleJavaScriptDialog, page.HandleJavaScriptDialogParams{Accept: true}))
	case *fetch.EventRequestPaused:
		t.answer(Send(fetch.ContinueRequest, fetch.ContinueRequestParams{RequestID: e.RequestID}))
	case *fetch.EventAuthRequired:
		t.answer(Send(fetch.ContinueWithAuth,
			fetch.ContinueWithAuthParams{RequestID: e.RequestID, AuthChallengeResponse: t.credentials}))
	}
}

// answer answers a message for which the page waits. It may have gone meanwhile.
func (t *Tab) answer(action Action) {
	go func() { _ = chromedp.Do(t.ctx, action) }()
}

// describe returns an error's words, or a value.
func describe(object *runtime.RemoteObject) string {
	return cmp.Or(object.Description, string(object.Value))
}

func (t *Tab) complain(text string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.complaints = append(t.complaints, text)
}

// SignIn makes the tab show a user and a password where it is asked for one.
func (t *Tab) SignIn(user, password string) {
	t.tb.Helper()
	t.credentials = &fetch.AuthChallengeResponse{
		Response: fetch.AuthChallengeResponseResponseProvideCredentials, Username: user, Password: password,
	}
	asked := true
	t.Do(Send(fetch.Enable, fetch.EnableParams{HandleAuthRequests: &asked}))
}

// Complaints are console errors and warnings, uncaught exceptions, breaches of the page's policy, dialogs, and requests
// that failed, as far as they are not expected.
func (t *Tab) Complaints() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(t.complaints), func(complaint string) bool {
		return slices.ContainsFunc(t.expected, func(text string) bool { return strings.Contains(complaint, text) })
	})
}

// Expect says that the test is about complaints that contain one of the texts.
func (t *Tab) Expect(texts ...string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.expected = append(t.expected, texts...)
}

// Addresses are those of all that the tab has asked for.
func (t *Tab) Addresses() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.addresses)
}

// Do does actions one after the other.
func (t *Tab) Do(actions ...Action) {
	t.tb.Helper()
	ctx, cancel := context.WithTimeout(t.ctx, Patience)
	defer cancel()
	if err := chromedp.Do(ctx, actions...); err != nil {
		t.tb.Fatal(err)
	}
}

// Picture takes a picture of the whole page, for people: into the folder LEAF_TEST_SCREENSHOTS, if that is set.
func (t *Tab) Picture(name string) {
	t.tb.Helper()
	dir := os.Getenv("LEAF_TEST_SCREENSHOTS")
	if dir == "" {
		return
	}
	ctx, cancel := context.WithTimeout(t.ctx, Patience)
	defer cancel()
	data, err := chromedp.Run(ctx, chromedp.FullScreenshot(100))
	if err = cmp.Or(err, os.MkdirAll(dir, 0o777)); err == nil {
		err = os.WriteFile(filepath.Join(dir, name+".png"), data, 0o666)
	}
	if err != nil {
		t.tb.Fatal(err)
	}
}

// Eval returns the value of an expression in JavaScript.
func Eval[T any](t *Tab, expression string) T {
	t.tb.Helper()
	found, err := evaluate[T](t, expression)
	if err != nil {
		t.tb.Fatalf("%s: %v", expression, err)
	}
	return found
}

func evaluate[T any](t *Tab, expression string) (T, error) {
	ctx, cancel := context.WithTimeout(t.ctx, Patience)
	defer cancel()
	return chromedp.Run(ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
}

// Await waits until an expression in JavaScript is true, which is what the test wants to see. Its condition is looked
// at from outside, because a page whose policy is strict allows nobody to make functions of text in it.
func (t *Tab) Await(what, expression string) {
	t.tb.Helper()
	looks := time.NewTicker(20 * time.Millisecond)
	defer looks.Stop()
	for deadline := time.Now().Add(Patience); !Eval[bool](t, "Boolean("+expression+")"); <-looks.C {
		if time.Now().After(deadline) {
			t.tb.Fatalf("waited %v in vain for %s: %s", Patience, what, expression)
		}
	}
}
