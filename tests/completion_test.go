package tests

import "testing"

// A shell is offered the tags that there are.
func TestCompletion(t *testing.T) {
	t.Parallel()
	g := embed(t, "--tag", "order", "--tag", "order.item", "--tag", "coupon")
	out := leafOK(t, "__complete", "get", "-s", g.url, "or")
	if out != "order\norder.item\n:4\n" {
		t.Errorf("offered %q", out)
	}
}
