package generator

import (
	"testing"
	"time"

	"github.com/leafbus/leafbus/allocator"
)

// A token is good for a second, and once. Their number is bounded.
func TestRooms(t *testing.T) {
	var r handover
	now := time.Now()
	late, good := r.open(now, new(allocator.Room)), r.open(now.Add(time.Millisecond), new(allocator.Room))
	then := now.Add(giveWithin + time.Millisecond)
	if r.take(then, late) != nil || r.take(then, good) == nil || r.take(then, good) != nil {
		t.Error("a token is good for a second, and once")
	}
	for range maxRooms {
		r.open(now, new(allocator.Room))
	}
	if r.open(now, new(allocator.Room)) != "" {
		t.Error("there are too many rooms")
	}
	if r.open(now.Add(time.Minute), new(allocator.Room)) == "" || len(r.rooms) != 1 {
		t.Errorf("%d rooms are kept for ever", len(r.rooms))
	}
}
