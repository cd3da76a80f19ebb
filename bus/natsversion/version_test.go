package natsversion

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// A server that is too old, or names no version, is refused with a sentence that names both and says what to do.
func TestCheck(t *testing.T) {
	type verdict struct{ fit, sound bool }
	for want, versions := range map[verdict][]string{
		{false, false}: {
			"2.9.20", "2.9.9", "2.9", "1.4.1", "2.9.21-RC.1", "2.10.0-beta.56", "2.10.0-RC.1", // pre-releases were made before and after the fix
			"", "dev", "vv2.11.9", "2.11.9.1", "2.011.9", "-2.11.9", "2.11.9 ", "nats-2.11.9", "2.x", "2.11.9-", "2.11.9\n2.9.20",
		},
		{true, false}: {"2.9.21", "v2.9.21", "2.9.21+custom", "2.9.22-beta", "2.9.100", "2.10.0", "2.10.29"},
		{true, true}:  {"2.11.0-dev", "2.11.9", "3.0.0-alpha.1", "10.0.0"},
	} {
		for _, version := range versions {
			err := check("a at 10.0.0.5:4222", version)
			if (err == nil) != want.fit || err == nil && isSound(version) != want.sound {
				t.Errorf("%q: %v, sound %v; want %+v", version, err, isSound(version), want)
			}
			if err == nil {
				continue
			}
			if _, ok := errors.AsType[Refusal](err); !ok || strings.Contains(err.Error(), "\n") || strings.Contains(err.Error(), ". ") {
				t.Errorf("%q: %v is no refusal in one sentence", version, err)
			}
			for _, part := range []string{"a at 10.0.0.5:4222", strings.Trim(fmt.Sprintf("%q", version), `"`), "2.9.21 or later"} {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%q: %q does not say %q", version, err, part)
				}
			}
		}
	}
}

// Whatever a server says, it is refused or 2.9.21 at least.
func FuzzCheck(f *testing.F) {
	for _, seed := range []string{"2.9.20", "2.9.21", "2.10.0-RC.1", "dev", "", "2.9.21-0+b", "3", "99999999999999999999.0.0"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, version string) {
		if check("a", version) != nil {
			return
		}
		core, _, _ := strings.Cut(strings.TrimPrefix(version, "v"), "+")
		core, _, _ = strings.Cut(core, "-")
		numbers := make([]uint64, 3)
		for i, digits := range strings.SplitN(core, ".", 3) {
			numbers[i], _ = strconv.ParseUint(digits, 10, 64) // the largest, if it does not fit
		}
		if slices.Compare(numbers, []uint64{2, 9, 21}) < 0 {
			t.Errorf("%q is fit", version)
		}
	})
}
