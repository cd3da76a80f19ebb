package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/tests/kit"
)

// backup is a copy of a stream, as an operator makes it who does not use leaf backup.
type backup struct {
	stream string
	about  struct{ Config, State json.RawMessage }
	chunks [][]byte
}

// backUp copies a stream while it is used.
func (w *world) backUp(stream string) *backup {
	b := &backup{stream: stream}
	w.persist("backup of "+stream, func(context.Context) error {
		inbox := w.nc.NewInbox()
		sub, err := w.nc.SubscribeSync(inbox)
		if err != nil {
			return err
		}
		defer func() { _ = sub.Unsubscribe() }()
		how := map[string]any{"deliver_subject": inbox, "no_consumers": true}
		answer, err := w.ask("$JS.API.STREAM.SNAPSHOT."+stream, how)
		if err == nil {
			err = json.Unmarshal(answer, &b.about)
		}
		for b.chunks = nil; err == nil; {
			msg, err := sub.NextMsg(5 * time.Second)
			if err != nil {
				return err
			}
			if len(msg.Data) == 0 {
				return nil
			}
			b.chunks = append(b.chunks, msg.Data)
			if msg.Reply != "" {
				_ = msg.Respond(nil) // the server goes on without it, too
			}
		}
		return err
	})
	return b
}

// backUpQuiet is a copy for which nobody wrote meanwhile. A record that is rewritten during a snapshot of nats-server
// can be missing in it: see docs/operate.md.
func (w *world) backUpQuiet(stream string) (b *backup) {
	w.persist("quiet backup of "+stream, func(ctx context.Context) error {
		last := func() (uint64, error) {
			s, err := w.js.Stream(ctx, stream)
			if err != nil {
				return 0, err
			}
			return s.CachedInfo().State.LastSeq, nil
		}
		before, err := last()
		if err != nil {
			return err
		}
		b = w.backUp(stream)
		after, err := last()
		if err == nil && after != before {
			err = fmt.Errorf("%d writes meanwhile", after-before)
		}
		return err
	})
	return b
}

// restore puts the copies of streams in the place of what there is now.
func (w *world) restore(copies ...*backup) {
	for _, b := range copies {
		w.excuseForgotten(b.stream)
		w.persist("restore of "+b.stream, func(ctx context.Context) error {
			err := w.js.DeleteStream(ctx, b.stream)
			if err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
				return err
			}
			about := map[string]any{"config": b.about.Config, "state": b.about.State}
			answer, err := w.ask("$JS.API.STREAM.RESTORE."+b.stream, about)
			var to struct {
				Subject string `json:"deliver_subject"`
			}
			if err == nil {
				err = json.Unmarshal(answer, &to)
			}
			for _, chunk := range append(slices.Clone(b.chunks), nil) { // the empty one is the end
				if err == nil {
					_, err = w.ask(to.Subject, chunk)
				}
			}
			return err
		})
		w.note("%s restored", b.stream)
	}
}

// removeStreams deletes streams with all that they have. Those that do not exist are no error.
func (w *world) removeStreams(names ...string) {
	for _, name := range names {
		w.excuseForgotten(name)
		w.persist("deletion of "+name, func(ctx context.Context) error {
			err := w.js.DeleteStream(ctx, name)
			if errors.Is(err, jetstream.ErrStreamNotFound) {
				return nil
			}
			return err
		})
		w.note("%s deleted", name)
	}
}

// streams are those that there are.
func (w *world) streams() (names []string) {
	w.persist("list of streams", func(ctx context.Context) error {
		list := w.js.StreamNames(ctx)
		names = nil
		for name := range list.Name() {
			names = append(names, name)
		}
		return list.Err()
	})
	return names
}

// ask sends bytes as they are, and all else as JSON. The answer may say that there was an error.
func (w *world) ask(subject string, body any) (answer []byte, err error) {
	data, raw := body.([]byte)
	if !raw && body != nil {
		if data, err = json.Marshal(body); err != nil {
			return nil, err
		}
	}
	msg, err := w.nc.Request(subject, data, 5*time.Second)
	if err != nil {
		return nil, err
	}
	var failed struct {
		Error *jetstream.APIError
	}
	if len(msg.Data) > 0 && json.Unmarshal(msg.Data, &failed) == nil && failed.Error != nil {
		return nil, failed.Error
	}
	return msg.Data, nil
}

// entry is the last revision of a key. It is there.
func (w *world) entry(bucket, key string) (e jetstream.KeyValueEntry) {
	w.persist("reading "+bucket+" "+key, func(ctx context.Context) error {
		kv, err := w.js.KeyValue(ctx, bucket)
		if err == nil {
			e, err = kv.Get(ctx, key)
		}
		return err
	})
	return e
}

// put writes a key, whatever it has.
func (w *world) put(bucket, key string, value []byte) {
	w.persist("writing "+bucket+" "+key, func(ctx context.Context) error {
		kv, err := w.js.KeyValue(ctx, bucket)
		if err == nil {
			_, err = kv.Put(ctx, key, value)
		}
		return err
	})
}

// persist tries until it succeeds. The runner gives up after a minute.
func (w *world) persist(what string, try func(context.Context) error) {
	var err error
	if !w.await(time.Minute, 200*time.Millisecond, func() bool {
		ctx, cancel := context.WithTimeout(w.ctx, 10*time.Second)
		defer cancel()
		err = try(ctx)
		return err == nil
	}) {
		w.Fatal(fmt.Errorf("%s: %w", what, err))
	}
}

// insist runs a command of an operator until it succeeds, as one does who reads its error and waits. After a minute
// the promise is broken that the command works.
func (w *world) insist(args ...string) {
	var r kit.Result
	if !w.await(time.Minute, time.Second, func() bool { r = w.operator(args...); return r.Status == 0 }) {
		w.violated("operator", "", fmt.Sprintf("leaf %v fails for a minute: %s", args, r.Stderr))
	}
}

// end is the next unclaimed ID in a tag's record.
func (w *world) end(tag string) (id int64) {
	w.persist("record of "+tag, func(ctx context.Context) error {
		r, err := w.admin.Tag(ctx, tag)
		id = int64(r.MaxID)
		return err
	})
	return id
}
