package callers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/leafbus/leafbus/bus"
)

// Met is what the callers of one kind met since the fault began, or in the whole test if none did.
type Met struct {
	Calls, IDs, Failed int64
	Gap                time.Duration // the longest time without an answer to any caller of this kind
	Slowest            time.Duration // call that got IDs
	Reasons            map[string]int64
}

func (m Met) String() string {
	text := fmt.Sprintf("%8d calls, %9d IDs, %6d failed, slowest %5v, longest time without an answer %5v",
		m.Calls, m.IDs, m.Failed, m.Slowest.Round(time.Millisecond), m.Gap.Round(time.Millisecond))
	for _, reason := range slices.Sorted(maps.Keys(m.Reasons)) {
		text += fmt.Sprintf("; %d × %s", m.Reasons[reason], reason)
	}
	return text
}

// Meet returns what the callers of each kind met in the calls that ended from one time to another. A zero time is no
// bound. The calls before show since when a kind had no answer.
func Meet(calls []Call, from, until time.Time) map[string]Met {
	met, last := make(map[string]Met), make(map[string]time.Time)
	for _, call := range slices.SortedFunc(slices.Values(calls), func(x, y Call) int { return x.Ended.Compare(y.Ended) }) {
		if call.Ended.Before(from) {
			if call.Err == nil {
				last[call.Kind] = call.Ended
			}
			continue
		}
		if !until.IsZero() && call.Ended.After(until) {
			break
		}
		m := met[call.Kind]
		m.Calls++
		if before, ok := last[call.Kind]; ok {
			m.Gap = max(m.Gap, call.Ended.Sub(before))
		} else {
			last[call.Kind] = call.Sent
		}
		if call.Err == nil {
			last[call.Kind], m.Slowest = call.Ended, max(m.Slowest, call.Ended.Sub(call.Sent))
			for _, r := range call.Ranges {
				m.IDs += r.Len()
			}
		} else {
			m.Failed++
			if m.Reasons == nil {
				m.Reasons = make(map[string]int64)
			}
			m.Reasons[reason(call.Err)]++
		}
		met[call.Kind] = m
	}
	for kind, before := range last {
		if !until.IsZero() { // the last answer may be long before
			m := met[kind]
			m.Gap = max(m.Gap, until.Sub(before))
			met[kind] = m
		}
	}
	return met
}

// reason is a short text for an error, the same for all errors of a kind.
func reason(err error) string {
	if e, ok := errors.AsType[*bus.Error](err); ok {
		return string(e.Reason)
	}
	if r, ok := errors.AsType[bus.Reason](err); ok {
		return string(r)
	}
	if _, ok := errors.AsType[*net.OpError](err); ok || errors.Is(err, io.EOF) {
		return "connection lost"
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return "timed out"
	}
	text, _, _ := strings.Cut(err.Error(), "\n")
	return text[:min(len(text), 80)]
}
