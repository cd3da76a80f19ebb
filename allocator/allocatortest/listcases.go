package allocatortest

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/leafbus/leafbus/allocator"
)

func pages(tb testing.TB, b Backend) {
	s := b.Open(tb)
	for i := range 25 {
		create(tb, s, fmt.Sprintf("a.%02d", i), 1, 10)
	}
	create(tb, s, "b", 1, 10)
	if _, err := s.Delete(within(tb), "a.03", 1); err != nil {
		tb.Fatalf("Delete: %v", err)
	}
	var names []string
	for after := ""; ; after = names[len(names)-1] {
		tags, err := s.List(within(tb), allocator.Query{Prefix: "a.", After: after, Limit: 7})
		if err != nil {
			tb.Fatalf("List: %v", err)
		}
		if len(tags) == 0 {
			break
		}
		for _, t := range tags {
			names = append(names, t.Name)
		}
		if len(names) > 25 {
			break
		}
	}
	if len(names) != 24 || names[0] != "a.00" || names[3] != "a.04" || names[23] != "a.24" {
		tb.Errorf("pages of 7 gave %v", names)
	}
	if tags, err := s.List(within(tb), allocator.Query{After: "zzz", Limit: 7}); err != nil || len(tags) != 0 {
		tb.Errorf("a page beyond the end: %v, %v", tags, err)
	}
}

func search(tb testing.TB, b Backend) {
	s := b.Open(tb)
	for _, name := range []string{"100/a=b-c.d_e", "ORDERS", "a", "mail", "order", "order-eu", "order.eu", "orderXeu", "order_eu", "shop.order=1", "shop.order=10", "zz"} {
		create(tb, s, name, 1, 10)
	}
	create(tb, s, "border", 1, 10)
	if _, err := s.Delete(within(tb), "border", 1); err != nil {
		tb.Fatalf("Delete: %v", err)
	}
	type query = allocator.Query
	for q, want := range map[query]string{
		{}:                     "100/a=b-c.d_e ORDERS a mail order order-eu order.eu orderXeu order_eu shop.order=1 shop.order=10 zz",
		{Contains: "order"}:    "order order-eu order.eu orderXeu order_eu shop.order=1 shop.order=10",
		{Contains: "Order"}:    "",
		{Contains: "RDE"}:      "ORDERS",
		{Contains: "eu"}:       "order-eu order.eu orderXeu order_eu",
		{Contains: "order_eu"}: "order_eu",
		{Contains: "order.eu"}: "order.eu",
		{Contains: "r-e"}:      "order-eu",
		{Contains: "_"}:        "100/a=b-c.d_e order_eu",
		{Contains: "."}:        "100/a=b-c.d_e order.eu shop.order=1 shop.order=10",
		{Contains: "/"}:        "100/a=b-c.d_e",
		{Contains: "=b-c.d_e"}: "100/a=b-c.d_e",
		{Contains: "=1"}:       "shop.order=1 shop.order=10",
		{Contains: "order=10"}: "shop.order=10",
		{Contains: "z"}:        "zz",
		{Contains: "zzz"}:      "",

		{Prefix: "order", Contains: "eu"}:                               "order-eu order.eu orderXeu order_eu",
		{Prefix: "order.", Contains: "order.eu"}:                        "order.eu", // also in the prefix
		{Prefix: "shop.", Contains: "eu"}:                               "",
		{Contains: "eu", Limit: 2}:                                      "order-eu order.eu",
		{Contains: "eu", After: "order.eu", Limit: 1}:                   "orderXeu",
		{Contains: "eu", After: "order.eu"}:                             "orderXeu order_eu",
		{Contains: "order", Limit: 1}:                                   "order",
		{Contains: "order", After: "b"}:                                 "order order-eu order.eu orderXeu order_eu shop.order=1 shop.order=10",
		{Prefix: "order", Contains: "eu", After: "order.eu", Limit: 1}:  "orderXeu",
		{Prefix: "order", Contains: "eu", After: "order_eu", Limit: 10}: "",
		{Prefix: "shop", Contains: "r=1", After: "order", Limit: 10}:    "shop.order=1 shop.order=10",
	} {
		q.Limit = cmp.Or(q.Limit, 100)
		wantList(tb, s, q, want)
	}
	// No character stands for another, and those that no tag has are no error.
	for _, text := range []string{
		"%", "order%", "order_e%", "o?der", "or*", "*", ">", ".*", "^order", "order$", "[a-z]", "(order)", "a|b", "order+", "\\", "\\.", "'", `"`, "`", ":a", "?", "??",
		" ", "order ", "\x00", "order\x00", "ör", "\xff", "order\xff", "日本", strings.Repeat("x", 2*allocator.MaxTagLen),
	} {
		wantList(tb, s, query{Contains: text, Limit: 100}, "")
		wantList(tb, s, query{Prefix: "order", Contains: text, After: "order-", Limit: 1}, "")
	}
}

// wantList checks which names a query finds.
func wantList(tb testing.TB, s allocator.Store, q allocator.Query, want string) {
	tb.Helper()
	tags, err := s.List(within(tb), q)
	var names []string
	for _, t := range tags {
		names = append(names, t.Name)
	}
	if got := strings.Join(names, " "); err != nil || got != want {
		tb.Errorf("List(%#v): %s, %v; want %s", q, got, err, want)
	}
}

func watch(tb testing.TB, b Backend) {
	s := b.Open(tb)
	create(tb, s, "before", 1, 10)
	ctx, cancel := context.WithCancel(within(tb))
	seen := make(chan allocator.Tag, 100)
	ended := make(chan error, 1)
	watcher := b.Open(tb)
	go func() { ended <- watcher.Watch(ctx, func(t allocator.Tag) { seen <- t }) }()
	until := func(what string, ok func(allocator.Tag) bool) {
		tb.Helper()
		for {
			select {
			case t := <-seen:
				if ok(t) {
					return
				}
			case <-ctx.Done():
				tb.Fatalf("the watch did not show %s", what)
			}
		}
	}
	until("a tag that was there", func(t allocator.Tag) bool { return t.Name == "before" && t.Step == 10 })
	create(tb, s, "after", 1, 10)
	until("a new tag", func(t allocator.Tag) bool { return t.Name == "after" })
	step, to := int64(77), int64(5000)
	if _, err := s.Update(within(tb), "after", allocator.Change{Step: &step, MaxID: &to}); err != nil {
		tb.Fatalf("Update: %v", err)
	}
	until("a change", func(t allocator.Tag) bool { return t.Name == "after" && t.Step == 77 && t.Floor == 5000 })
	if _, err := s.Delete(within(tb), "after", 1); err != nil {
		tb.Fatalf("Delete: %v", err)
	}
	until("a deletion", func(t allocator.Tag) bool { return t.Name == "after" && t.Deleted && t.MaxID >= 5000 })
	cancel()
	select {
	case err := <-ended:
		if err == nil {
			tb.Errorf("Watch ended without an error")
		}
	case <-time.After(timeout):
		tb.Errorf("Watch did not end with its context")
	}
}
