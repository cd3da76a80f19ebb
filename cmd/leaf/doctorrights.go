package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/internal/cli"
	"github.com/leafbus/leafbus/internal/wire"
)

// nowhere is the last token of subjects that nothing listens to.
const nowhere = "leaf_doctor"

// permissions checks whether this user of NATS may do what a generator does. It publishes only what
// nobody takes: requests that are not valid, and messages to streams with a condition that never
// holds.
func (d *doctor) permissions(ctx context.Context, s *cli.Session) (string, error) {
	r := rights{ctx: ctx, nc: s.NC}
	for _, subject := range []string{
		wire.SubjectSegment + "." + nowhere, wire.SubjectSnowflake, wire.SubjectDecode, wire.SubjectClock,
		"leaf.admin." + nowhere, "leaf.internal." + nowhere, "$SRV.PING." + nowhere, "$SRV.INFO." + nowhere,
		"$SRV.STATS." + nowhere, s.NC.NewInbox(),
	} {
		r.need("subscribe to "+subject, subject, r.subscribe)
	}
	api, kv := "$JS.API.", ""
	if domain := s.JS.Options().Domain; domain != "" {
		api = "$JS." + domain + ".API."
		kv = api // nats.go sends the writes of a domain's buckets there
	}
	for _, subject := range []string{
		wire.SubjectSegment + ".", "leaf.internal.", "leaf.admin.", "leaf.events.info.doctor.probe.", "$SRV.STATS.",
		"$JS.ACK.", "$JS.FC.", api + "STREAM.INFO.", api + "STREAM.CREATE.", api + "STREAM.MSG.GET.",
		api + "CONSUMER.CREATE.", api + "CONSUMER.DELETE.", kv + "$KV." + wire.BucketInstallation + ".",
		kv + "$KV." + wire.BucketTags + ".", kv + "$KV." + wire.BucketWorkers + ".", kv + "$KV." + wire.BucketKeys + ".",
	} {
		r.need("publish to "+subject+nowhere, subject+nowhere, r.publish)
	}
	if len(r.lacks) == 0 {
		r.need("answer callers (allow_responses)", "_INBOX."+nowhere, r.answer)
	} else { // it is no generator, so it must not read what is for others
		for _, of := range [][2]string{
			{"_INBOX", "the answers to other callers"},
			{wire.SubjectInbox, "the answers to generators, such as keys of opaque tags"},
		} {
			prefix, what := of[0], of[1]
			if !r.denied(prefix+"."+nowhere+".*", r.subscribe) && r.err == nil {
				d.add(finding{Check: "permissions", State: stateWarning,
					Found: "this user may subscribe to all of " + prefix + ".>, and so read " + what,
					Fix: "let it subscribe only to _INBOX.<name>.>, with a name of its own, and give its programs that inbox " +
						"prefix (SECURITY.md)"})
			}
		}
	}
	if len(r.lacks) > 0 && r.err == nil {
		d.add(finding{Check: "permissions", State: stateProblem,
			Found: "a generator of this user fails, because it may not " + strings.Join(r.lacks, ", "),
			Fix:   "run leaf doctor as the user of the generators, and give that user these permissions (SECURITY.md)"})
	}
	if prefix := s.NC.Opts.InboxPrefix; !strings.HasPrefix(prefix+".", wire.SubjectInbox+".") {
		d.add(finding{Check: "permissions", State: stateWarning,
			Found: "with --inbox-prefix generators get the keys of opaque tags below " + prefix + ", where callers may read",
			Fix:   "start them without --inbox-prefix"})
	}
	return "this user may do all that a generator does", r.err
}

// rights tries what a user of NATS may do.
type rights struct {
	ctx   context.Context
	nc    *nats.Conn
	lacks []string // what it may not do
	err   error    // of trying
}

// need notes whether NATS denies to do what is about subject.
func (r *rights) need(what, subject string, do func(subject string) error) {
	if r.denied(subject, do) {
		r.lacks = append(r.lacks, what)
	}
}

func (r *rights) denied(subject string, do func(subject string) error) bool {
	before := r.nc.LastError()
	if r.err == nil {
		r.err = do(subject)
	}
	if r.err == nil {
		if err := r.nc.FlushWithContext(r.ctx); err != nil { // the server reports a denial before it answers this
			r.err = fmt.Errorf("NATS does not answer: %w", err)
		}
	}
	last := r.nc.LastError()
	return r.err == nil && last != before && errors.Is(last, nats.ErrPermissionViolation) &&
		strings.Contains(last.Error(), `"`+subject+`"`)
}

func (r *rights) subscribe(subject string) error {
	sub, err := r.nc.SubscribeSync(subject)
	if err == nil {
		err = sub.Unsubscribe()
	}
	return err
}

func (r *rights) publish(subject string) error {
	msg := nats.NewMsg(subject)
	msg.Header.Set(jetstream.ExpectedStreamHeader, nowhere)
	msg.Header.Set("ce-time", time.Now().Format(time.RFC3339)) // so that those who follow events live can read it
	msg.Data = []byte("{}")
	return r.nc.PublishMsg(msg)
}

// answer answers a request on an inbox of a caller.
func (r *rights) answer(reply string) error {
	requests, err := r.nc.SubscribeSync(r.nc.NewInbox())
	if err != nil {
		return err
	}
	defer func() { _ = requests.Unsubscribe() }()
	if err := r.nc.PublishRequest(requests.Subject, reply, nil); err != nil {
		return err
	}
	request, err := requests.NextMsgWithContext(r.ctx)
	if err != nil {
		return fmt.Errorf("NATS does not answer: %w", err)
	}
	return request.Respond(nil)
}
