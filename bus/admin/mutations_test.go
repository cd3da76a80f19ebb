//go:build mutations

package admin

import (
	"testing"

	"github.com/leafbus/leafbus/internal/mutate"
)

// TestMutations demands that a test finds each of these changes, which break a promise of the client: a change that an
// operator takes as failed does not happen later, and an error says why.
func TestMutations(t *testing.T) {
	for _, m := range []struct {
		name, by string // by finds it
		edit     mutate.Edit
	}{
		{"a change does not say how long its sender waits", "TestChangesAreSentOnce", mutate.Edit{"ask.go",
			"		msg.Header = nats.Header{", "		_ = nats.Header{"}},
		{"a change that a generator did not do fails", "TestChangesGoOn", mutate.Edit{"ask.go",
			"!ok || refused.Reason != bus.Draining {", "true || !ok || refused == nil {"}},
		{"a change that may have happened is sent again", "TestChangesGoOn", mutate.Edit{"ask.go",
			"!ok || refused.Reason != bus.Draining {", "!ok || refused == nil {"}},
		{"answers that are lost with the connection are not missed", "TestRequestsEndWithTheConnection", mutate.Edit{
			"../../internal/wire/ask.go", "|| a.nc.Stats().Reconnects != a.reconnects", ""}},
		{"a call without a deadline has none", "TestCallsWithoutDeadline", mutate.Edit{"../../internal/wire/ask.go",
			"ok || timeout <= 0 {", "ok || timeout > 0 {"}},
		{"an older report about a lost node counts", "TestLostNodes", mutate.Edit{"state.go",
			"l.SilentMS < known.SilentMS", "l.SilentMS > known.SilentMS"}},
		{"an error does not say that there is no generator", "TestRequestsThatReachNobody", mutate.Edit{
			"../../internal/wire/ask.go", "return nil, NoResponders(request.Subject)", "return nil, err"}},
		{"a denial is hidden", "TestClientWithoutPermission", mutate.Edit{"../../internal/wire/ask.go",
			"Reply), published)", "Reply), cmp.Or(nil, published, nil))\n		err = nil"}},
	} {
		t.Run(m.name, func(t *testing.T) { mutate.Runner{Package: "."}.Run(t, m.by, m.edit) })
	}
}
