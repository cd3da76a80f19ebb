package bus

import (
	"errors"
	"testing"
	"time"

	"github.com/leafbus/leafbus/internal/wire"
	"github.com/nats-io/nats.go"
)

func TestErrorBody(t *testing.T) {
	e := &Error{Code: 503, Reason: StoreUnavailable, Message: `a <b> & "c"`, RetryAfter: 12 * time.Millisecond}
	want := `{"code":503,"reason":"store_unavailable","message":"a <b> & \"c\"","retry_after_ms":12}`
	body := wire.Encode(e)
	if got := string(body); got != want {
		t.Errorf("body %s, want %s", got, want)
	}
	back, ok := errors.AsType[*Error](ReplyError(&nats.Msg{Header: nats.Header{"Nats-Service-Error-Code": {"503"}}, Data: body}))
	if !ok || *back != *e {
		t.Errorf("read back as %+v, want %+v", back, e)
	}
}

// Answers of services that are not ours are errors too.
func TestForeignError(t *testing.T) {
	for name, header := range map[string]nats.Header{
		"code alone": {"Nats-Service-Error-Code": {"418"}},
		"text alone": {"Nats-Service-Error": {"teapot"}},
	} {
		if err := ReplyError(&nats.Msg{Header: header, Data: []byte("7")}); err == nil {
			t.Errorf("%s: taken for IDs", name)
		}
	}
	if err := ReplyError(&nats.Msg{Data: []byte("7")}); err != nil {
		t.Errorf("IDs are taken for an error: %v", err)
	}
}
