package clients

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/tests/kit"
)

// Each client does what clients/conformance.txt says.
func TestConformance(t *testing.T) {
	for _, l := range languages {
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			generator := kit.Embed(t, "--http", "127.0.0.1:0", "--http-token", "a-token")
			real, s := generator.URL, overNATS
			if l.http {
				real, s = generator.HTTP, overHTTP
			}
			c := &conformance{generator: generator, script: s(t)}
			c.runner = l.start(t, real, c.script.url)
			cases := readCases(t)
			if len(cases) < 25 {
				t.Fatalf("the list has %d cases", len(cases))
			}
			for _, lines := range cases {
				t.Run(strings.TrimPrefix(lines[0], "case "), func(t *testing.T) {
					c.t, c.runner.t = t, t
					c.run(lines[1:])
				})
			}
		})
	}
}

// readCases returns the lines of each case. The first one names it.
func readCases(t *testing.T) (cases [][]string) {
	t.Helper()
	text, err := os.ReadFile("../../clients/conformance.txt")
	kit.Must(t, err)
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		switch {
		case line == "" || line[0] == '#':
		case strings.HasPrefix(line, "case "):
			cases = append(cases, []string{line})
		default:
			cases[len(cases)-1] = append(cases[len(cases)-1], line)
		}
	}
	return cases
}

// conformance runs cases, one after the other.
type conformance struct {
	t         *testing.T
	generator *kit.Generator
	script    *script
	runner    *runner

	server  string        // that the case asks
	started <-chan string // the answer to the call of the last line start
	last    string        // ID that came
	highest int64         // of those in order
}

// ofScript finds the word after the first call of a case: the tag, if the call has one.
var ofScript = regexp.MustCompile(`(?:next|take|pool|snowflake) (\S+)`)

func (c *conformance) run(lines []string) {
	c.server, c.highest = "real", 0
	if slices.ContainsFunc(lines, func(line string) bool { return strings.HasPrefix(line, "answer ") }) {
		c.server = "scripted"
		c.runner.words(c.server, "reset")
	}
	var answers []string
	tag := ofScript.FindStringSubmatch(strings.Join(lines, "\n"))
	for _, line := range lines {
		verb, rest, _ := strings.Cut(line, " ")
		if verb == "answer" {
			answers = append(answers, rest)
			continue
		}
		if answers != nil {
			c.script.begin(tag[1], answers)
			answers = nil
		}
		switch verb {
		case "$":
			kit.LeafOK(c.t, append(strings.Fields(rest)[1:], "-s", c.generator.URL)...)
		case "start":
			c.started = c.runner.begin(c.server, rest)
		case "finish":
			c.check(line, c.runner.finish(c.started), strings.TrimSpace(rest))
		case "wait":
			testkit.Eventually(c.t, rest+" requests", func() bool { return c.script.count() >= c.number(rest) })
		case "requests":
			least, most, _ := strings.Cut(rest, " ")
			if n := c.script.count(); n < c.number(least) || n > c.number(most) {
				c.t.Errorf("%d requests came, want %s", n, rest)
			}
			c.script.restart()
		case "together", "repeat":
			n, calls, _ := strings.Cut(rest, " ")
			c.many(c.number(n), calls, verb == "together")
		default:
			call, want := split(line)
			c.check(line, c.runner.call(c.server, strings.ReplaceAll(call, "LAST", c.last)), want)
		}
	}
}

// split returns a call, and what must come.
func split(line string) (call, want string) {
	at := strings.LastIndex(line, " = ")
	if at < 0 {
		at = strings.LastIndex(line, " ! ")
	}
	if at < 0 {
		return line, ""
	}
	return line[:at], line[at+1:]
}

func (c *conformance) many(n int, line string, together bool) {
	call, want := split(line)
	var begun []<-chan string
	if together {
		for range n {
			begun = append(begun, c.runner.begin(c.server, call))
		}
	}
	var ids []string
	for i := range n {
		if !together {
			begun = append(begun, c.runner.begin(c.server, call))
		}
		answer := c.runner.finish(begun[i])
		if strings.HasPrefix(want, "!") {
			c.check(line, answer, want)
			continue
		}
		ids = append(ids, strings.TrimPrefix(answer, "= "))
	}
	if ids != nil {
		c.check(line, "= "+strings.Join(ids, " "), want)
	}
}

// check compares an answer with what a line of the list wants.
func (c *conformance) check(line, got, want string) {
	c.t.Helper()
	words, wants := strings.Fields(got), strings.Fields(want)
	fail := func() {
		c.t.Helper()
		c.t.Errorf("%s: the answer is %q", line, got)
	}
	if len(wants) < 2 || len(words) < 2 || words[0] != wants[0] {
		fail()
		return
	}
	if words[0] == "!" {
		if len(words) < 4 || !slices.Equal(words[1:len(wants)], wants[1:]) { // the message is for people
			fail()
		}
		return
	}
	ids := words[1:]
	switch first := wants[1]; {
	case first == "decoded":
		if d := c.decoded(); d != strings.Join(ids, " ") {
			c.t.Errorf("%s: the answer is %q, want %s", line, got, d)
		}
		return
	case first[0] == '*':
		distinct := slices.Compact(slices.Sorted(slices.Values(ids)))
		if len(ids) != len(distinct) || len(ids) != c.number(first[1:]) {
			fail()
		}
		for _, id := range ids {
			c.id(id)
		}
	case first[0] == '+':
		least := c.highest + 1
		if len(wants) > 2 {
			least = c.id(wants[2])
		}
		for i, word := range ids {
			if id := c.id(word); id < least || i > 0 && id != c.highest+1 {
				fail()
				return
			}
			c.highest = c.id(word)
		}
		if len(ids) != c.number(first[1:]) {
			fail()
		}
	default:
		if !slices.Equal(ids, wants[1:]) {
			fail()
		}
	}
	c.last = ids[len(ids)-1]
}

// decoded is what the Go client says of the last snowflake, as the programs print it.
func (c *conformance) decoded() string {
	c.t.Helper()
	d, err := bus.NewClient(kit.Connect(c.t, c.generator.URL)).Decode(c.t.Context(), c.id(c.last))
	kit.Must(c.t, err)
	return fmt.Sprintf("%d %d %d %d", d.ID, d.UnixMS, d.Worker, d.Sequence)
}

func (c *conformance) number(text string) int { return int(c.id(text)) }

func (c *conformance) id(text string) int64 {
	c.t.Helper()
	id, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		c.t.Fatalf("%q is no number", text)
	}
	return id
}
