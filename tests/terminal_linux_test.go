package tests

import (
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"github.com/leafbus/leafbus/internal/testkit"
)

// terminal returns a terminal and what somebody at it types into.
func terminal(t *testing.T) (screen, keyboard *os.File) {
	t.Helper()
	keyboard, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { keyboard.Close() })
	var locked, number int32
	for _, c := range []struct {
		request uintptr
		value   *int32
	}{{syscall.TIOCSPTLCK, &locked}, {syscall.TIOCGPTN, &number}} {
		if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, keyboard.Fd(), c.request, uintptr(unsafe.Pointer(c.value))); errno != 0 {
			t.Fatal(errno)
		}
	}
	screen, err = os.OpenFile(fmt.Sprint("/dev/pts/", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { screen.Close() })
	return screen, keyboard
}

// At a terminal the name of the node is asked for, and nothing else will do.
func TestReleaseAtATerminal(t *testing.T) {
	t.Parallel()
	g := embed(t, "--worker-id", "5")
	js := jetStream(t, connect(t, g.url))
	changeWorker(t, js, 900, silent)
	kept := workerText(t, js, 900)
	for _, c := range []struct {
		typed  string // "": nobody types, but interrupts
		status int
		stderr string
	}{
		{"", 1, "nothing was done: interrupted"},
		{"\n", 1, "nothing was done"},
		{"y\n", 1, `nothing was done: "y"`},
		{"yes\n", 1, "nothing was done"},
		{"900\n", 1, "nothing was done"},
		{"Gone\n", 1, "nothing was done"},
		{"\x04", 2, "--yes"}, // the end of the input
		{" gone \n", 0, ""},
	} {
		screen, keyboard := terminal(t)
		cmd := command(t, t.TempDir(), nil, []string{"workers", "release", "900", "-s", g.url})
		cmd.Stdin = screen
		p := start(t, cmd)
		testkit.Eventually(t, "the question", func() bool {
			select {
			case <-p.exited:
				t.Fatalf("it asks nothing: %s", p.stderr.String())
			default:
			}
			return strings.HasSuffix(p.stderr.String(), "Type the name of the node that is stopped, gone: ")
		})
		if now := workerText(t, js, 900); now != kept {
			t.Fatalf("before the answer: the record was %s and is %s", kept, now)
		}
		if c.typed == "" {
			p.signal(os.Interrupt)
		} else if _, err := keyboard.WriteString(c.typed); err != nil {
			t.Fatal(err)
		}
		r := result{p.wait(patience), p.stdout.String(), p.stderr.String()}
		r.want(t, c.status, c.stderr)
		if released := workerText(t, js, 900) != kept; released != (c.status == 0) || released != strings.Contains(r.stdout, "worker 900 is free from ") {
			t.Errorf("%q was typed: released is %v, stdout says %q", c.typed, released, r.stdout)
		}
	}
}

// On a terminal long work shows how far it is, how fast, and how long it still
// takes, and leaves no trace of that.
func TestProgressAtATerminal(t *testing.T) {
	t.Parallel()
	g := embed(t, "--tag", "order")
	screen, keyboard := terminal(t)
	cmd := command(t, t.TempDir(), nil, []string{"get", "order", "-n", "1000000000000", "--output", t.TempDir() + "/ids", "-s", g.url})
	cmd.Stderr = screen
	p := start(t, cmd)
	shown := make([]byte, 0, 1<<16)
	line := regexp.MustCompile(`\r\x1b\[K\d+ of 1000000000000 IDs \(0 %\), [1-9]\d*/s, \S+ left`)
	for !line.Match(shown) {
		n, err := keyboard.Read(shown[len(shown):cap(shown)])
		if err != nil || n == 0 {
			t.Fatalf("%q, %v", shown, err)
		}
		shown = shown[:len(shown)+n]
	}
	p.signal(os.Interrupt)
	for !strings.Contains(string(shown), "interrupted") {
		n, err := keyboard.Read(shown[len(shown):cap(shown)])
		if err != nil || n == 0 {
			t.Fatalf("%q, %v", shown, err)
		}
		shown = shown[:len(shown)+n]
	}
	if !strings.Contains(string(shown), "\r\x1b[Kleaf: ") {
		t.Errorf("the line of the progress is left: %q", shown)
	}
	p.wait(patience)
}

// Where the IDs go to the terminal, nothing is written between them.
func TestIDsAtATerminal(t *testing.T) {
	t.Parallel()
	g := embed(t, "--tag", "order")
	screen, keyboard := terminal(t)
	cmd := command(t, t.TempDir(), nil, []string{"get", "order", "-n", "1000000", "-s", g.url})
	cmd.Stdout, cmd.Stderr = screen, screen
	p := start(t, cmd)
	var shown strings.Builder
	for buf := make([]byte, 1<<16); !strings.HasSuffix(shown.String(), "\n1000000\r\n"); {
		n, err := keyboard.Read(buf)
		if err != nil || n == 0 {
			t.Fatalf("it ends with %q: %v", shown.String()[max(0, shown.Len()-60):], err)
		}
		shown.Write(buf[:n])
	}
	p.wait(patience)
	if !regexp.MustCompile(`\A([0-9]+\r\n)+\z`).MatchString(shown.String()) {
		t.Error("there is more than the IDs")
	}
}

// A tag is deleted only if its name is typed, or with --yes.
func TestRemoveAtATerminal(t *testing.T) {
	t.Parallel()
	g := embed(t, "--tag", "order")
	exists := func() bool { return strings.Contains(leafOK(t, "tag", "list", "-s", g.url), "order") }
	leaf(t, "tag", "rm", "order", "-s", g.url).want(t, 2, "After the deletion, requests for order are refused", "no terminal", "--yes")
	leaf(t, "tag", "rm", "nobody", "-s", g.url).want(t, 1, "unknown_tag")
	for _, c := range []struct {
		typed  string
		status int
		stderr string
	}{
		{"\n", 1, "nothing was done"},
		{"y\n", 1, `nothing was done: "y"`},
		{"\x04", 2, "--yes"}, // the end of the input
		{"order\n", 0, ""},
	} {
		if !exists() {
			t.Fatalf("it was deleted before %q was typed", c.typed)
		}
		screen, keyboard := terminal(t)
		cmd := command(t, t.TempDir(), nil, []string{"tag", "rm", "order", "-s", g.url})
		cmd.Stdin = screen
		p := start(t, cmd)
		testkit.Eventually(t, "the question", func() bool {
			select {
			case <-p.exited:
				t.Fatalf("it asks nothing: %s", p.stderr.String())
			default:
			}
			return strings.HasSuffix(p.stderr.String(), "Type the name of the tag to delete, order: ")
		})
		if _, err := keyboard.WriteString(c.typed); err != nil {
			t.Fatal(err)
		}
		result{p.wait(patience), p.stdout.String(), p.stderr.String()}.want(t, c.status, c.stderr)
	}
	if exists() {
		t.Error("the tag was not deleted")
	}
}

// On a terminal alerts are red, unless NO_COLOR is set. Elsewhere nothing has colours, and nothing is JSON unless that is asked for.
func TestEventsAtATerminal(t *testing.T) {
	t.Parallel()
	url := newNATS(t).ClientURL()
	g := serve(t, t.TempDir(), "-s", url, "--tag", "order")
	serve(t, t.TempDir(), "-s", url).kill()
	eventLines := func(env ...string) string {
		t.Helper()
		screen, keyboard := terminal(t)
		cmd := command(t, t.TempDir(), append([]string{"TERM=xterm", "NO_COLOR="}, env...), []string{"events", "--since", "1h", "-s", url})
		cmd.Stdout = screen
		p := start(t, cmd)
		var shown output
		go func() { _, _ = io.Copy(&shown, keyboard) }()
		testkit.Eventually(t, "the lost generator on the screen", func() bool { return strings.Contains(shown.String(), "last_heard=") })
		p.kill()
		return shown.String()
	}
	line := regexp.MustCompile(`(?m)^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}(Z|[+-]\d\d:\d\d)  ` + "\x1b" + `\[31malert  node\.lost            ` + "\x1b" + `\[0m  \S+ +run=\S+ last_heard=\d{4}-`)
	if shown := eventLines(); !line.MatchString(shown) {
		t.Errorf("the terminal shows %q", shown)
	}
	if shown := eventLines("NO_COLOR=1"); strings.Contains(shown, "\x1b") {
		t.Errorf("with NO_COLOR the terminal shows %q", shown)
	}
	p := start(t, command(t, t.TempDir(), nil, []string{"events", "--since", "1h", "-s", url}))
	testkit.Eventually(t, "all events in a file", func() bool { return strings.Contains(p.stdout.String(), "last_heard=") })
	text := p.stdout.String()
	for l := range strings.Lines(text) {
		if strings.ContainsAny(l, "{}\x1b") || len(l) > 250 {
			t.Errorf("a line is %q", l)
		}
	}
	if !strings.Contains(text, "node.started           "+g.node) {
		t.Errorf("the events are %q", text)
	}
}
