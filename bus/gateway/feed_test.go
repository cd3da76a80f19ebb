package gateway

import (
	"fmt"
	"testing"
	"time"
)

// Of many alerts the oldest are forgotten.
func TestFeedIsBounded(t *testing.T) {
	t.Parallel()
	f := newFeed(nil, nil)
	for i := range maxAlerts + 50 {
		f.addLive(starved("a", fmt.Sprint(i), time.Duration(i)))
	}
	f.addLive(starved("a", "10049", 10049)) // heard again, because the stream is unavailable
	v := f.view(nil)
	kept := f.alerts.count
	if kept > maxAlerts || kept < maxAlerts*9/10 || v.Lasting != kept || len(v.Alerts) != kept ||
		len(v.Events) != maxShown {
		t.Errorf("%d alerts are kept, %d last, %d and %d are shown", kept, v.Lasting, len(v.Alerts), len(v.Events))
	}
	for i, key := range []string{"10049", "10048"} {
		if v.Alerts[i].Key != key || v.Events[i].Key != key {
			t.Errorf("alert %d is of %s, event %d of %s, want %s", i, v.Alerts[i].Key, i, v.Events[i].Key, key)
		}
	}
}
