package kvstore

import (
	"context"
	"errors"

	"github.com/nats-io/nats.go/jetstream"
)

// AdoptedTags returns which bucket of tags the record of an installation notes that is made again: the one that is marked as its own, or
// else one that does not exist, because the tags were lost with the record.
func AdoptedTags(ctx context.Context, cfg Config, installation string) (first uint64, err error) {
	const lost = 1
	b, err := findTags(ctx, cfg)
	var m *marker
	if err == nil {
		m, err = b.marker(ctx)
	}
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound), err == nil && m == nil:
		return lost, nil
	case err != nil:
		return 0, err
	case m.Installation != installation || m.FirstSeq != b.first:
		return lost, nil
	}
	return b.first, nil
}
