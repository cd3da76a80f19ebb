package audit_test

import (
	"errors"
	"testing"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/bustest"
)

// What is not there is said over the bus: the max_id of a deleted tag, and a tag that never was.
func TestWhatIsNotThere(t *testing.T) {
	t.Parallel()
	c := bustest.Start(t, "order").Client()
	if _, err := c.Take(t.Context(), "order", 1); err != nil {
		t.Fatal(err)
	}
	if _, err := c.DeleteTag(t.Context(), "order"); err != nil {
		t.Fatal(err)
	}
	page, err := c.Claims(t.Context(), bus.ClaimsRequest{Tags: []string{"order", "none"}})
	if err != nil || len(page.Claims) != 2 || page.Claims[0].MaxID != 0 || page.Claims[0].End == 0 || page.Claims[1].End != 0 {
		t.Errorf("%+v, %v", page, err)
	}
	if a, err := c.AuditTag(t.Context(), "order"); err != nil || a.End == 0 || a.MaxID != 0 {
		t.Errorf("%+v, %v", a, err)
	}
	if a, err := c.AuditTag(t.Context(), "none"); !errors.Is(err, bus.UnknownTag) {
		t.Errorf("%+v, %v", a, err)
	}
	if a, err := c.Trace(t.Context(), bus.TraceRequest{Tag: "none", ID: 1}); !errors.Is(err, bus.UnknownTag) {
		t.Errorf("%+v, %v", a, err)
	}
}
