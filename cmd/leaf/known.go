package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/generator"
)

// knowledge is what generators and events know of tags, whatever the records say.
type knowledge struct {
	nodes   []string                 // the generators that were heard
	ends    map[string]int64         // of all ranges of a tag
	changes map[string]bus.TagRecord // by the last event of each tag that was not deleted
	deleted map[string]bool
}

// gather asks all generators and reads the events. A generator of another installation is an error, unless the installation is "".
func gather(ctx context.Context, c *bus.Client, js jetstream.JetStream, installation string) (knowledge, error) {
	k := knowledge{ends: make(map[string]int64), changes: make(map[string]bus.TagRecord), deleted: make(map[string]bool)}
	note := func(tag string, end int64) {
		if allocator.CheckTag(tag) == nil {
			k.ends[tag] = max(k.ends[tag], end)
		}
	}
	for after, more := "", true; more; {
		pages, err := c.Known(ctx, bus.KnownRequest{After: after})
		if err != nil {
			return k, fmt.Errorf("what the generators know cannot be read: %w", err)
		}
		after, more, k.nodes = "", false, nil
		for _, page := range pages {
			if installation != "" && page.Installation != "" && page.Installation != installation {
				return k, fmt.Errorf("the generator %s on this NATS is of installation %s, and the backup is of installation %s: "+
					"name the right --server and account", page.Node, page.Installation, installation)
			}
			k.nodes = append(k.nodes, page.Node)
			for _, t := range page.Tags {
				note(t.Tag, int64(t.End))
			}
			if page.Next != "" && (!more || page.Next < after) {
				after, more = page.Next, true
			}
		}
	}
	err := generator.LastRefills(ctx, js, "", note)
	if err == nil {
		err = generator.LastChanges(ctx, js, "", func(t bus.TagRecord, deleted bool) {
			note(t.Tag, int64(t.MaxID))
			k.changes[t.Tag], k.deleted[t.Tag] = t, deleted // they come in their order
		})
	}
	if err != nil {
		return k, fmt.Errorf("what the events know cannot be read (if the stream is lost for good, remove it: nats stream rm %s): %w", bus.EventStream, err)
	}
	return k, nil
}

// missingTag is a tag that generators or events know, and that has no record.
type missingTag struct {
	Tag    string `json:"tag"`
	End    bus.ID `json:"end"`              // of all ranges that are known: it must begin there or above
	Order  string `json:"order,omitempty"`  // strict, or else empty
	Opaque string `json:"opaque,omitempty"` // its domain
}

// missingTags returns the tags that somebody knows, and of which there is no record, not even that of a deletion. listed are those that
// exist.
func missingTags(ctx context.Context, c *bus.Client, k knowledge, listed []string) ([]missingTag, error) {
	missing := []missingTag{}
	unlisted := make(map[string]bool)
	for tag := range k.ends {
		unlisted[tag] = !k.deleted[tag]
	}
	for _, tag := range listed {
		delete(unlisted, tag)
	}
	maps.DeleteFunc(unlisted, func(_ string, missed bool) bool { return !missed })
	for names := slices.Sorted(maps.Keys(unlisted)); len(names) > 0; {
		page, err := c.Claims(ctx, bus.ClaimsRequest{Tags: names[:min(len(names), claimsNamed)]})
		if err != nil {
			return nil, err
		}
		for _, claims := range page.Claims {
			if claims.End == 0 && claims.MaxID == 0 && claims.Problem == "" {
				t := k.changes[claims.Tag]
				missing = append(missing, missingTag{claims.Tag, bus.ID(k.ends[claims.Tag]), t.Order, t.Opaque})
			}
		}
		if len(page.Claims) == 0 {
			return nil, fmt.Errorf("the answer about %d tags is empty", len(names))
		}
		names = names[len(page.Claims):] // as many as fit into an answer
	}
	return missing, nil
}

// claimsNamed is how many tags one question about claims may name.
const claimsNamed = 1000

// warnMissing names missing tags, and for each one the command that says where it begins.
func warnMissing(w io.Writer, missing []missingTag) {
	for i, t := range missing {
		if i == mostFailures {
			fmt.Fprintf(w, "and %d more (--json lists all)\n", len(missing)-i)
			return
		}
		fmt.Fprintf(w, "warning: %s is missing, and IDs below %d are in use: %s\n", t.Tag, t.End, t.command())
	}
}

// command says where the tag begins.
func (t missingTag) command() string {
	switch {
	case t.Order == bus.OrderStrict:
		return fmt.Sprintf("`leaf tag add %s --order strict --max-id N`, with N above all IDs that your services got", t.Tag)
	case t.Opaque != "":
		return fmt.Sprintf("`leaf tag add %s --opaque=%s --max-id %d`", t.Tag, t.Opaque, t.End)
	}
	return fmt.Sprintf("`leaf tag add %s --max-id %d`", t.Tag, t.End)
}

// warnStrict says what an operator must do about strict tags after a restore.
func warnStrict(w io.Writer, tags int) {
	if tags > 0 {
		fmt.Fprintf(w, "warning: strict tags: %d. After a restore of JetStream this command is not enough for them: "+
			"use `leaf tag set TAG --max-id` for each one, with an ID above all that your services got\n", tags)
	}
}
