package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/admin"
)

// missingTimeout is how long a generator may take to find out which tags are missing: it may have to read a million
// names.
const missingTimeout = 30 * time.Second

// missingTags asks a generator which tags are missing.
func missingTags(ctx context.Context, c *admin.Client) (admin.MissingTags, error) {
	ctx, cancel := context.WithTimeout(ctx, missingTimeout)
	defer cancel()
	return c.MissingTags(ctx)
}

// warnMissing names missing tags, and for each one the command that says where it begins.
func warnMissing(w io.Writer, missing admin.MissingTags) {
	shown := missing.Tags[:min(len(missing.Tags), mostFailures)]
	for _, t := range shown {
		fmt.Fprintf(w, "warning: %s is missing, and IDs below %d are in use: %s\n", t.Tag, t.End, adds(t))
	}
	if more := len(missing.Tags) - len(shown) + missing.More; more > 0 {
		fmt.Fprintf(w, "and %d more (--json lists them)\n", more)
	}
}

// adds is the command that says where a missing tag begins.
func adds(t admin.MissingTag) string {
	t.End = max(t.End, 2) // 1 is what a new tag begins at, which is refused while records are lost
	switch {
	case t.Order == bus.OrderStrict:
		return fmt.Sprintf("`leaf tag add %s --order strict --max-id N`, with N above all IDs that your services got", t.Tag)
	case t.Opaque != "":
		return fmt.Sprintf("`leaf tag add %s --opaque=%s --max-id %d`", t.Tag, t.Opaque, t.End)
	case t.Order == "":
		return fmt.Sprintf("`leaf tag add %s --max-id %d`, with --order or --opaque if it had that: nobody knows its kind", t.Tag, t.End)
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
