package natsversion

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
)

func TestCheck(t *testing.T) {
	for version, want := range map[string]struct{ fit, sound bool }{
		"2.9.20":         {false, false},
		"2.9.9":          {false, false},
		"2.9":            {false, false}, // 2.9.0
		"2.2.0":          {false, false},
		"1.4.1":          {false, false},
		"0.9.4":          {false, false},
		"2.9.21-RC.1":    {false, false}, // pre-releases were made before and after the fix
		"2.9.21":         {true, false},
		"v2.9.21":        {true, false},
		"2.9.21+custom":  {true, false},
		"2.9.22-beta":    {true, false},
		"2.9.100":        {true, false},
		"2.10.0-beta.1":  {false, false},
		"2.10.0-beta.56": {false, false},
		"2.10.0-RC.1":    {false, false},
		"2.10.0":         {true, false},
		"2.10.1-beta":    {true, false},
		"2.10.19":        {true, false},
		"2.10.29":        {true, false},
		"2.11.0-dev":     {true, true},
		"2.11.0-RC.1":    {true, true},
		"2.11.9":         {true, true},
		"2.15.0-dev":     {true, true},
		"3.0.0-alpha.1":  {true, true},
		"10.0.0":         {true, true},

		"":               {false, false},
		"dev":            {false, false},
		"vv2.11.9":       {false, false},
		"2.11.9.1":       {false, false},
		"2.011.9":        {false, false},
		"-2.11.9":        {false, false},
		"2.11.9 ":        {false, false},
		"nats-2.11.9":    {false, false},
		"2.x":            {false, false},
		"2.11.9-":        {false, false},
		"2.11.9\n2.9.20": {false, false},
	} {
		err := check("a at 10.0.0.5:4222", version)
		if (err == nil) != want.fit || err == nil && isSound(version) != want.sound {
			t.Errorf("%q: %v, sound %v; want %+v", version, err, isSound(version), want)
		}
		if err == nil {
			continue
		}
		if _, ok := errors.AsType[Refusal](err); !ok {
			t.Errorf("%q: %T, want a Refusal", version, err)
		}
		for _, part := range []string{"a at 10.0.0.5:4222", strings.Trim(fmt.Sprintf("%q", version), `"`), "2.9.21 or later"} {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%q: %q does not say %q", version, err, part)
			}
		}
		if strings.Contains(err.Error(), "\n") || strings.Contains(err.Error(), ". ") {
			t.Errorf("%q: %q is not one sentence", version, err)
		}
	}
}

// Whatever a server says, it is refused or 2.9.21 at least.
func FuzzCheck(f *testing.F) {
	for _, seed := range []string{"2.9.20", "2.9.21", "2.10.0-RC.1", "2.15.0-dev", "dev", "", "2.9.21-0+b", "3", "99999999999999999999.0.0"} {
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
