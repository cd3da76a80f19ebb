package main

import (
	"cmp"
	"fmt"
	"reflect"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/admin"
	"github.com/leafbus/leafbus/bus/idspace"
)

// merge leaves in a spec what changes a tag, or changes nothing, and returns the changes in words. A generator does the
// rest, as for leaf tag set.
func merge(want *admin.TagSpec, is admin.TagRecord) (changes []string, err error) {
	if order := cmp.Or(is.Order, bus.OrderTrend); want.Order != "" && want.Order != order {
		return nil, fmt.Errorf("its order is %s, for life: give the %s tag another name", order, want.Order)
	}
	if want.Opaque != "" && want.Opaque != is.Opaque {
		domain := cmp.Or(is.Opaque, "none")
		return nil, fmt.Errorf("its domain is %s, for life: give the opaque tag another name", domain)
	}
	want.Order, want.Opaque = "", ""
	note := func(given bool, field string, was any, wanted func() any) {
		if given && was != wanted() {
			changes = append(changes, fmt.Sprintf("%s %s → %s", field, shown(was), shown(wanted())))
		}
	}
	if want.MaxID != nil && *want.MaxID <= is.MaxID {
		want.MaxID = nil // it is never lowered, and the same one would cost what generators have in memory
	}
	note(want.MaxID != nil, "max_id", is.MaxID, func() any { return *want.MaxID })
	note(want.Step != nil, "step", is.Step, func() any { return *want.Step })
	if want.Description != nil && *want.Description != is.Description {
		changes = append(changes, "description")
	}
	note(want.Quota != nil, "quota", is.Quota, func() any {
		return idspace.Quota{PerSecond: want.Quota.PerSecond, Burst: cmp.Or(want.Quota.Burst, want.Quota.PerSecond)}
	})
	note(want.Paused != nil, "paused", is.Paused, func() any { return *want.Paused })
	note(want.Outlast != nil, "outlast", is.Outlast, func() any { return *want.Outlast })
	note(want.Limit != nil, "limit", is.Limit, func() any { return bus.ID(*want.Limit) })
	return changes, nil
}

// shown is the value of a field in a line for people.
func shown(v any) string {
	if q, ok := v.(idspace.Quota); ok && q.PerSecond > 0 {
		return fmt.Sprintf("%d/s burst %d", q.PerSecond, q.Burst)
	}
	if reflect.ValueOf(v).IsZero() && v != false {
		return "none"
	}
	return fmt.Sprint(v)
}
