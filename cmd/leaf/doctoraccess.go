package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/bus"
)

// nowhere is the last token of subjects that nothing listens to.
const nowhere = "leaf_doctor"

// permissions checks whether this user of NATS may do what a generator does. It publishes only what nobody takes:
// requests that are not valid, and messages to streams with a condition that never holds.
func (d *doctor) permissions(ctx context.Context, _ *slog.Logger) (string, error) {
	var denied []string
	for _, subject := range []string{
		bus.SubjectSegment + "." + nowhere, bus.SubjectSnowflake, bus.SubjectDecode, bus.SubjectClock,
		"leaf.admin." + nowhere, "leaf.internal." + nowhere, "$SRV.PING." + nowhere, d.nc.NewInbox(),
	} {
		no, err := d.denies(ctx, subject, func() error {
			sub, err := d.nc.SubscribeSync(subject)
			if err == nil {
				err = sub.Unsubscribe()
			}
			return err
		})
		if err != nil {
			return "", err
		}
		if no {
			denied = append(denied, "subscribe to "+subject)
		}
	}
	api := "$JS.API."
	kv := ""
	if d.conn.jsDomain != "" {
		api = "$JS." + d.conn.jsDomain + ".API."
		kv = api // nats.go sends the writes of a domain's buckets there
	}
	subjects := []string{bus.SubjectSegment + "." + nowhere, "leaf.internal." + nowhere, "leaf.events.info.doctor.probe." + nowhere, "$JS.ACK." + nowhere}
	for _, call := range []string{"STREAM.INFO.", "STREAM.CREATE.", "STREAM.MSG.GET.", "CONSUMER.CREATE.", "CONSUMER.DELETE."} {
		subjects = append(subjects, api+call+nowhere)
	}
	for _, bucket := range []string{bus.BucketInstallation, bus.BucketTags, bus.BucketWorkers, bus.BucketLedger, bus.BucketKeys} {
		subjects = append(subjects, kv+"$KV."+bucket+"."+nowhere)
	}
	for _, subject := range subjects {
		msg := nats.NewMsg(subject)
		msg.Header.Set(jetstream.ExpectedStreamHeader, nowhere)
		msg.Header.Set("ce-time", time.Now().Format(time.RFC3339)) // so that those who follow events live can read it
		msg.Data = []byte("{}")
		no, err := d.denies(ctx, subject, func() error { return d.nc.PublishMsg(msg) })
		if err != nil {
			return "", err
		}
		if no {
			denied = append(denied, "publish to "+subject)
		}
	}
	if len(denied) > 0 {
		return "", advise("run leaf doctor as the user of the generators, and give that user these permissions (docs/doctor.md)",
			"a generator of this user fails, because it may not %s", strings.Join(denied, ", "))
	}
	return "this user may do all that a generator does", nil
}

// denies reports whether NATS denies to try what is about subject.
func (d *doctor) denies(ctx context.Context, subject string, try func() error) (bool, error) {
	before := d.nc.LastError()
	if err := try(); err != nil {
		return false, err
	}
	if err := d.nc.FlushWithContext(ctx); err != nil { // the server reports a denial before it answers this
		return false, fmt.Errorf("NATS does not answer: %w", err)
	}
	last := d.nc.LastError()
	return last != before && errors.Is(last, nats.ErrPermissionViolation) && strings.Contains(last.Error(), `"`+subject+`"`), nil
}
