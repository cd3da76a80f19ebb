package faults

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/admin"
	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/internal/wire"
	"github.com/leafbus/leafbus/tests/kit"
	"github.com/leafbus/leafbus/tests/kit/callers"
)

// call starts callers of all kinds.
func (in *installation) call(asked []string, fails func(callers.Call) bool) {
	in.Helper()
	if in.asked = asked; asked == nil {
		in.asked = []string{order, coupon, snowflakes, invoice}
	}
	var addresses []string
	for _, g := range in.nodes {
		addresses = append(addresses, g.HTTP)
	}
	cfg := callers.Config{Batch: 200, Once: 2 * time.Second, Pause: 5 * time.Millisecond, MayFail: fails}
	if slices.Contains(in.asked, invoice) {
		cfg.Tags, cfg.Strict = []string{invoice}, []string{invoice}
		in.strict = callers.New(in.T, cfg).All(in.url, addresses...)
	}
	isStrict := func(tag string) bool { return tag == invoice }
	cfg.Tags, cfg.Strict = slices.DeleteFunc(slices.Clone(in.asked), isStrict), nil
	in.callers = callers.New(in.T, cfg).All(in.url, addresses...)
	in.callAgain()
	in.callers.Fault()
}

// callAgain waits until each kind of caller got IDs again.
func (in *installation) callAgain() {
	in.Helper()
	for _, c := range []*callers.Callers{in.callers, in.strict} {
		if c != nil {
			c.MoreOfEach()
			c.Check()
		}
	}
}

// more waits until callers got IDs some times more.
func (in *installation) more(calls int64) {
	in.Helper()
	in.callers.More(calls)
	if in.strict != nil {
		in.strict.More(calls / 10)
	}
}

// highest is the highest ID that callers got of the first of their tags.
func (in *installation) highest() int64 { return in.callers.Highest(in.asked[0]) }

// ahead waits until IDs of that tag come that are so far above all that came: they were claimed since.
func (in *installation) ahead(by int64) {
	in.Helper()
	until := in.highest() + by
	testkit.Eventually(in.T, fmt.Sprint("IDs above ", until), func() bool {
		in.callers.More(20)
		return in.highest() > until
	})
	in.callers.Check()
}

// stopCalling ends the callers. An audit must agree with all that they got.
func (in *installation) stopCalling() {
	in.Helper()
	if in.db != nil { // one that went back is raised by the next refill of each tag
		testkit.Eventually(in.T, "a database above all claims", func() bool { in.more(20); return len(in.audit()) == 0 })
	}
	in.callers.Stop()
	if in.strict != nil {
		in.strict.Stop()
	}
	var taken strings.Builder
	for _, tag := range in.asked {
		from := in.callers
		switch tag {
		case invoice:
			from = in.strict
		case snowflakes: // the callers look for repeats, and the audit for two holders
			continue
		}
		for _, r := range from.Ranges(tag) {
			fmt.Fprintf(&taken, "%s %v\n", tag, r) // as leaf get --ranges prints it
		}
	}
	file := filepath.Join(in.TempDir(), "taken")
	kit.Must(in.T, os.WriteFile(file, []byte(taken.String()), 0o600))
	if found := in.audit("--taken", file); len(found) > 0 {
		in.Errorf("leaf audit: %+v", found)
	}
}

type contradiction struct{ Kind, Message string }

// audit runs leaf audit, again if it could not read everything, as after an election.
func (in *installation) audit(args ...string) []contradiction {
	in.Helper()
	var report struct {
		Events         int64
		Contradictions []contradiction
	}
	testkit.Eventually(in.T, "an audit that can read everything", func() bool {
		r := kit.Leaf(in.T, append([]string{"audit", "--json", "-s", in.url}, args...)...)
		return json.Unmarshal([]byte(r.Stdout), &report) == nil
	})
	if report.Events == 0 {
		in.Error("leaf audit read no event")
	}
	return report.Contradictions
}

func is(err error, reason bus.Reason) bool { return errors.Is(err, reason) }

func (in *installation) create(record string) error {
	in.Helper()
	msg, err := in.nc.Request(admin.SubjectTagsCreate, []byte(record), testkit.Patience)
	kit.Must(in.T, err)
	return bus.ReplyError(msg)
}

// subject is that of requests for a tag, or for snowflakes.
func subject(tag string) string {
	if tag == snowflakes {
		return wire.SubjectSnowflake
	}
	return wire.SubjectSegment + "." + tag
}

// request asks once for IDs of a tag, or for snowflakes.
func (in *installation) request(tag string, n int64) ([]bus.Range, error) {
	msg, err := in.nc.Request(subject(tag), fmt.Append(nil, n), 2*time.Second)
	if err == nil {
		err = bus.ReplyError(msg)
	}
	if err != nil {
		return nil, err
	}
	return wire.ParseReply(msg.Data)
}

// take returns an ID, which must come in the end.
func (in *installation) take(tag string) (id int64) {
	in.Helper()
	testkit.Eventually(in.T, "an ID of "+cmp.Or(tag, "snowflakes"), func() bool {
		ranges, err := in.request(tag, 1)
		if err == nil {
			id = ranges[0].First
		}
		return err == nil
	})
	return id
}

// above demands that the next IDs of a tag, of whichever generators, are at least least.
func (in *installation) above(tag string, least int64) {
	in.Helper()
	for range 10 {
		if id := in.take(tag); id < least {
			in.Fatalf("ID %d of %q came, and all below %d are in use", id, tag, least)
		}
	}
}

// refused asks for n IDs, also of what is in memory, until a refusal has this reason and text.
func (in *installation) refused(tag string, n int64, reason bus.Reason, text string) {
	in.Helper()
	testkit.Eventually(in.T, fmt.Sprintf("a refusal of %q: %s", tag, reason), func() bool {
		_, err := in.request(tag, n)
		return is(err, reason) && strings.Contains(err.Error(), text)
	})
}

// send sends requests whose answers come to the subscription.
func (in *installation) send(count int, body string, tags ...string) *nats.Subscription {
	in.Helper()
	inbox := in.nc.NewInbox()
	answers, err := in.nc.SubscribeSync(inbox)
	kit.Must(in.T, err)
	for range count {
		for _, tag := range tags {
			kit.Must(in.T, in.nc.PublishRequest(subject(tag), inbox, []byte(body)))
		}
	}
	kit.Must(in.T, in.nc.Flush())
	return answers
}

// answered waits for so many answers. Each has IDs, or is a refusal for one of these reasons.
func (in *installation) answered(count int, answers *nats.Subscription, reasons ...bus.Reason) {
	in.Helper()
	for range count {
		msg, err := answers.NextMsg(testkit.Patience)
		if err != nil {
			in.Fatalf("a request was not answered: %v", err)
		}
		err = bus.ReplyError(msg)
		if err != nil && !slices.ContainsFunc(reasons, func(r bus.Reason) bool { return is(err, r) }) {
			in.Fatalf("answered %v, want %v", err, reasons)
		}
	}
}

// getLater asks over HTTP for what must be waited for, and returns where the status comes.
func (in *installation) getLater(path string) <-chan int {
	status := make(chan int, 1)
	go func() {
		defer close(status)
		if answer, err := http.Get(in.nodes[0].HTTP + path); err == nil {
			answer.Body.Close()
			status <- answer.StatusCode
		}
	}()
	return status
}

// get asks a generator over HTTP.
func (in *installation) get(i int, path string) (status int, body string) {
	in.Helper()
	answer, err := http.Get(in.nodes[i].HTTP + path)
	kit.Must(in.T, err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	kit.Must(in.T, err)
	return answer.StatusCode, string(text)
}
