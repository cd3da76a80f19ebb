package installation

import (
	"context"
	"fmt"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus/kvstore"
)

// Place is a database or a ZooKeeper. It belongs to one installation, and has an ID of its own.
type Place interface {
	// Name is where it is, for people and for the data folder.
	Name() string
	// Claim returns the installation that the place belongs to, and the place's ID. Both are empty
	// if it belongs to none. With first, a place of none then belongs to this installation. If the
	// place belongs to this installation, nothing is read or written in another one from then on.
	Claim(ctx context.Context, installation string, first bool) (of, id string, err error)
	// Repair returns what a person types to make the place, with this ID, the installation's;
	// without an installation, what makes it belong to none.
	Repair(installation, id string) string
}

// use is a place, and what the generator keeps there.
type use struct {
	Place
	noted                        func(*kvstore.Installation) *string // where the record notes the place's ID
	what, content, flags, client string                              // for messages
}

func database(p Place) *use {
	return &use{p, func(i *kvstore.Installation) *string { return &i.Database },
		"the database", "tags", "--mysql", "a MySQL client"}
}

func zooKeeper(p Place) *use {
	return &use{p, func(i *kvstore.Installation) *string { return &i.ZooKeeper },
		"ZooKeeper (" + p.Name() + ")", "workers", "--zookeeper and --zookeeper-name", "zkCli.sh"}
}

// ExamineDatabase returns why a generator of this installation must not use a database, or cannot
// now.
func ExamineDatabase(ctx context.Context, p Place, have kvstore.Installation) error {
	return database(p).look(ctx, have, false).err
}

// ExamineZooKeeper is ExamineDatabase for a ZooKeeper.
func ExamineZooKeeper(ctx context.Context, p Place, have kvstore.Installation) error {
	return zooKeeper(p).look(ctx, have, false).err
}

// look is what was found in a place.
type look struct {
	*use
	of, id string // its owner, and its own ID; empty: it belongs to none
	err    error  // why it cannot be used now, or must not: then it matches [allocator.ErrRefused]
}

// look finds the owner of a place, for the installation that the generator is to join. With first,
// a place of none then belongs to this installation.
func (u *use) look(ctx context.Context, have kvstore.Installation, first bool) look {
	l := look{use: u}
	l.of, l.id, l.err = u.Claim(ctx, have.ID, first)
	if l.err == nil {
		l.err = l.check(have)
	}
	return l
}

// check compares what the place says with the record. Its error says what is wrong, and what to do.
func (l look) check(have kvstore.Installation) error {
	noted := *l.noted(&have)
	switch {
	case l.of == "" && noted == "":
		return nil
	case l.of != "" && (noted == "" || noted == l.id):
		if l.of == have.ID {
			return nil
		}
		here := "this NATS has no installation yet (if it lost it, run `leaf restore FILE`)"
		if have.ID != "" {
			here = "this NATS is installation " + have.ID
		}
		return fmt.Errorf("%w: %s belongs to installation %s, and %s: join the NATS of %[3]s (--server) with a new "+
			"--data-dir, or name another one with %[5]s, or, if %[3]s is gone for good and what its workers reserved is "+
			"over, type in %[6]s: %[7]s", allocator.ErrRefused, l.what, l.of, here, l.flags, l.client, l.Repair("", ""))
	}
	state, or := "is "+l.id+" of installation "+l.of, "if it is gone for good and"
	if l.of == "" {
		state, or = "belongs to no installation", "if it is this one, it lost its state: restore it, or, if"
	}
	return fmt.Errorf("%w: installation %s keeps its %s in another place (%s; %s %s): the same IDs could come from "+
		"both. Name that one with %s, on every generator; or, %s this one has all that it had, type in %s: %s",
		allocator.ErrRefused, have.ID, l.content, noted, l.what, state, l.flags, or, l.client, l.Repair(have.ID, noted))
}
