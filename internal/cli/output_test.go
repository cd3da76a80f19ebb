package cli

import (
	"strings"
	"testing"
)

func TestPrintTable(t *testing.T) {
	var out strings.Builder
	PrintTable(&out, Row{"TAG", "MAX ID", "DESCRIPTION"},
		Row{"order", 1001, "orders\tof\nthe shop \x1b[31m"},
		Row{"customer.vip", "1", ""})
	want := "" +
		"TAG           MAX ID  DESCRIPTION\n" +
		"order         1001    orders of the shop  [31m\n" +
		"customer.vip  1       -\n"
	if out.String() != want {
		t.Errorf("got\n%q, want\n%q", out.String(), want)
	}
}
