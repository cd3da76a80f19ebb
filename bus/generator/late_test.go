package generator_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus/admin"
	"github.com/leafbus/leafbus/internal/natskit"
	"github.com/leafbus/leafbus/internal/testkit"
)

// The work on a change ends before its sender gives up, and the sender hears that it may have happened.
func TestWorkEndsBeforeTheSenderGivesUp(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	left := make(chan time.Duration, 1) // how long the first change may take
	start(t, s, "n", writing{memory(t, "order"), func(ctx context.Context, _ allocator.Tag, _ uint64) (uint64, error) {
		end, _ := ctx.Deadline()
		select {
		case left <- time.Until(end):
		default:
		}
		<-ctx.Done()
		return 0, fmt.Errorf("%w: %w", allocator.ErrUncertain, ctx.Err())
	}}, nil)
	// On a slow machine the answer may come later than that. So the sender says less than it waits.
	const most = time.Second
	nc := natskit.Connect(t, s)
	testkit.Eventually(t, "it may have happened", func() bool { // on a busy machine it may count as too late, and nothing happens
		answer, err := nc.RequestMsg(&nats.Msg{Subject: admin.SubjectTagsUpdate, Data: []byte(`{"tag":"order","step":20}`),
			Header: nats.Header{"Leaf-Timeout": {fmt.Sprint(most.Milliseconds())}}}, testkit.Patience)
		if err != nil {
			t.Fatal(err)
		}
		body := string(answer.Data)
		return strings.Contains(body, `"reason":"timed_out"`) && strings.Contains(body, "it may have happened: send it again")
	})
	if left := <-left; left > most-most/20 {
		t.Errorf("the work may take %v of %v", left, most)
	}
}

// A generator refuses a change if its sender does not wait, and does nothing. It answers questions.
func TestTooLate(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	store := memory(t, "order")
	start(t, s, "n", store, nil)
	nc := natskit.Connect(t, s)
	send := func(subject, timeout string) (code, body string) {
		t.Helper()
		answer, err := nc.RequestMsg(&nats.Msg{Subject: subject, Data: []byte(`{"tag":"order"}`), Header: nats.Header{"Leaf-Timeout": {timeout}}}, testkit.Patience)
		if err != nil {
			t.Fatal(err)
		}
		return answer.Header.Get("Nats-Service-Error-Code"), string(answer.Data)
	}
	for timeout, want := range map[string]string{"0": "503", "soon": "400"} {
		if code, body := send(admin.SubjectTagsDelete, timeout); code != want {
			t.Errorf("timeout %s: code %q, %s", timeout, code, body)
		}
	}
	if _, body := send(admin.SubjectTagsDelete, "0"); !strings.Contains(body, `"reason":"draining"`) || !strings.Contains(body, "nothing was done, send it again") {
		t.Errorf("too late: %s", body)
	}
	if code, body := send(admin.SubjectTagsGet, "5000"); code != "" {
		t.Errorf("the tag: code %q, %s", code, body)
	}
	if code, body := send(admin.SubjectTagsDelete, "5000"); code != "" {
		t.Errorf("in time: code %q, %s", code, body)
	}
}
