package tests

import (
	"go/constant"
	"go/types"
	"os"
	"strconv"
	"testing"
)

// Helpers of files that went, for those that still use them.

const (
	module      = "github.com/leafbus/leafbus"
	raceEnabled = false // the program is built without the race detector
)

// topFile is a file at the top of the repository.
func topFile(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile("../" + name)
	must(t, err)
	return string(text)
}

// inTheDoc is a number as docs have it: 1,000.
func inTheDoc(c *types.Const, _ string) string {
	n, _ := constant.Int64Val(constant.ToInt(c.Val()))
	digits := strconv.FormatInt(n, 10)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}
