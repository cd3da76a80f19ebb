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
	"github.com/leafbus/leafbus/bus/installation"
)

// nowhere is the last token of subjects that nothing listens to.
const nowhere = "leaf_doctor"

// permissions checks whether this user of NATS may do what a generator does. It publishes only what nobody takes:
// requests that are not valid, and messages to streams with a condition that never holds.
func (d *doctor) permissions(ctx context.Context, log *slog.Logger) (string, error) {
	var denied []string
	for _, subject := range []string{
		bus.SubjectSegment + "." + nowhere, bus.SubjectSnowflake, bus.SubjectDecode, bus.SubjectClock,
		"leaf.admin." + nowhere, "leaf.internal." + nowhere, "$SRV.PING." + nowhere, "$SRV.INFO." + nowhere,
		"$SRV.STATS." + nowhere, d.nc.NewInbox(),
	} {
		no, err := d.deniesSubscription(ctx, subject)
		if err != nil {
			return "", err
		}
		if no {
			denied = append(denied, "subscribe to "+subject)
		}
	}
	api := "$JS.API."
	kv := ""
	if d.JSDomain != "" {
		api = "$JS." + d.JSDomain + ".API."
		kv = api // nats.go sends the writes of a domain's buckets there
	}
	subjects := []string{bus.SubjectSegment + "." + nowhere, "leaf.internal." + nowhere, "leaf.admin." + nowhere,
		"leaf.events.info.doctor.probe." + nowhere, "$SRV.STATS." + nowhere, "$JS.ACK." + nowhere, "$JS.FC." + nowhere}
	for _, call := range []string{"STREAM.INFO.", "STREAM.CREATE.", "STREAM.MSG.GET.", "CONSUMER.CREATE.",
		"CONSUMER.DELETE."} {
		subjects = append(subjects, api+call+nowhere)
	}
	for _, bucket := range []string{bus.BucketInstallation, bus.BucketTags, bus.BucketWorkers, bus.BucketKeys} {
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
	if len(denied) == 0 {
		no, err := d.deniesAnswers(ctx)
		if err != nil {
			return "", err
		}
		if no {
			denied = append(denied, "answer callers (allow_responses)")
		}
	}
	if len(denied) > 0 {
		if err := d.secrets(ctx, log); err != nil {
			return "", err
		}
		return "", advise("run leaf doctor as the user of the generators, and give that user these permissions "+
			"(SECURITY.md)",
			"a generator of this user fails, because it may not %s", strings.Join(denied, ", "))
	}
	if prefix := d.InboxPrefix; prefix != "" && !strings.HasPrefix(prefix+".", installation.InboxPrefix+".") {
		log.Warn("with --inbox-prefix generators get the keys of opaque tags below "+prefix+", where callers may read",
			"fix", "start them without --inbox-prefix")
	}
	return "this user may do all that a generator does", nil
}

// secrets warns if a user that is no generator may read what is for others.
func (d *doctor) secrets(ctx context.Context, log *slog.Logger) error {
	for prefix, what := range map[string]string{
		"_INBOX":                 "the answers to other callers",
		installation.InboxPrefix: "the answers to generators, such as keys of opaque tags",
	} {
		no, err := d.deniesSubscription(ctx, prefix+"."+nowhere+".*") // as the inbox of anybody
		if err != nil {
			return err
		}
		if !no {
			log.Warn("this user may subscribe to all of "+prefix+".>, and so read "+what,
				"fix", "let it subscribe only to _INBOX.<name>.>, with a name of its own, "+
					"and give its programs that inbox prefix (SECURITY.md)")
		}
	}
	return nil
}

// deniesAnswers reports whether NATS denies to answer a request on an inbox of a caller.
func (d *doctor) deniesAnswers(ctx context.Context) (bool, error) {
	requests, err := d.nc.SubscribeSync(d.nc.NewInbox())
	if err != nil {
		return false, err
	}
	defer func() { _ = requests.Unsubscribe() }()
	reply := "_INBOX." + nowhere
	if err := d.nc.PublishRequest(requests.Subject, reply, nil); err != nil {
		return false, err
	}
	request, err := requests.NextMsgWithContext(ctx)
	if err != nil {
		return false, fmt.Errorf("NATS does not answer: %w", err)
	}
	return d.denies(ctx, reply, func() error { return request.Respond(nil) })
}

// deniesSubscription reports whether NATS denies to subscribe to subject.
func (d *doctor) deniesSubscription(ctx context.Context, subject string) (bool, error) {
	return d.denies(ctx, subject, func() error {
		sub, err := d.nc.SubscribeSync(subject)
		if err == nil {
			err = sub.Unsubscribe()
		}
		return err
	})
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
	return last != before && errors.Is(last, nats.ErrPermissionViolation) &&
		strings.Contains(last.Error(), `"`+subject+`"`), nil
}
