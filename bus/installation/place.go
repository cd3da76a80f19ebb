package installation

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/kvstore"
	"github.com/leafbus/leafbus/snowflake"
)

// Place is a database or a ZooKeeper. It belongs to one installation, and has an ID of its own.
type Place interface {
	// Name is where it is, for people and for the data folder.
	Name() string
	// Claim returns the installation that the place belongs to, and the place's ID. Both are empty if it
	// belongs to none. With first, a place of none then belongs to this installation. If the place
	// belongs to this installation, nothing is read or written in another one from then on.
	Claim(ctx context.Context, installation string, first bool) (of, id string, err error)
	// Repair returns what a person types to make the place, with this ID, the installation's; without an
	// installation, what makes it belong to none.
	Repair(installation, id string) string
}

// use is a place and what the generator keeps there.
type use interface {
	Place
	// noted returns the ID of the place that the record notes for this use: another than id, if there
	// is one. Empty: none.
	noted(have *kvstore.Installation, id string) string
	// note notes the place.
	note(have *kvstore.Installation, id string)
	words() words
	// replaced says what to do if the record notes another one.
	replaced(have *kvstore.Installation, id string) string
}

// words are for messages: what the place is, what is in it, the flags that say which one it is, and the
// program in which a person changes it.
type words struct{ place, content, flags, client string }

// look is what was found in a place.
type look struct {
	found
	use
	of, id string
	err    error // why it is away or unfit
}

// lookAt finds the owner of a place, for the installation that the generator is to join. With first, a
// place of none then belongs to this installation.
func lookAt(ctx context.Context, u use, have *kvstore.Installation, first bool) look {
	if u == nil {
		return look{found: unused}
	}
	l := look{use: u}
	l.of, l.id, l.err = u.Claim(ctx, have.ID, first)
	switch {
	case errors.Is(l.err, allocator.ErrRefused) || errors.Is(l.err, snowflake.ErrRefused):
		l.found = unfit
	case l.err != nil:
		l.found = away
	default:
		l.compare(have)
	}
	return l
}

// compare compares what the place says with the record.
func (l *look) compare(have *kvstore.Installation) {
	noted := l.noted(have, l.id)
	switch {
	case l.of == "" && noted == "":
		l.found = free
	case l.of == "":
		l.found = emptied
	case noted != "" && noted != l.id:
		l.found = replaced
	case l.of != have.ID:
		l.found = others
	default:
		l.found = ours
	}
}

// verdict returns why a generator of this installation must not use the place, or not yet.
func (l look) verdict(have kvstore.Installation) error {
	f := facts{known: have.ID, record: ours, have: have, database: l, zooKeeper: look{found: unused}}
	_, err := f.decide()
	return err
}

// why says what is wrong with what was found, and what to do.
func (l look) why(have kvstore.Installation) error {
	if l.err != nil {
		return l.err
	}
	w := l.words()
	switch l.found {
	case others:
		here := "this NATS has no installation yet (if it lost it, run `leaf restore FILE`)"
		if have.ID != "" {
			here = "this NATS is installation " + have.ID
		}
		return fmt.Errorf("%s belongs to installation %s, and %s: join the NATS of %[2]s (--server) with a new --data-dir, or name another one with %[4]s, "+
			"or, if %[2]s is gone for good and what its workers reserved is over, type in %[5]s: %[6]s", w.place, l.of, here, w.flags, w.client, l.Repair("", ""))
	case emptied:
		noted := l.noted(&have, "")
		return fmt.Errorf("installation %s keeps its %s in %s, and %s belongs to no installation: it lost its state, or is another one. "+
			"Name the right one with %s, or restore it; if it is the right one, with all that it had, type in %s: %s",
			have.ID, w.content, noted, w.place, w.flags, w.client, l.Repair(have.ID, noted))
	default:
		return fmt.Errorf("installation %s keeps its %s in another place (%s; %s is %s of installation %s): the same IDs would come from both. Name that one with %s, on every generator; %s",
			have.ID, w.content, l.noted(&have, l.id), w.place, l.id, l.of, w.flags, l.replaced(&have, l.id))
	}
}

// database is a place that keeps the tags.
type database struct{ Place }

func (database) noted(have *kvstore.Installation, _ string) string { return have.Database }
func (database) note(have *kvstore.Installation, id string)        { have.Database = id }

func (database) words() words { return words{"the database", "tags", "--mysql", "a MySQL client"} }

func (d database) replaced(have *kvstore.Installation, _ string) string {
	return "or, if it is gone for good and this one has all its rows, type in a MySQL client: " + d.Repair(have.ID, have.Database)
}

// zooKeeper is a place that keeps the workers from first to last.
type zooKeeper struct {
	Place
	first, last int64
}

// overlapping returns what the record notes of one of the workers: of another place than id, if there is one.
func (z zooKeeper) overlapping(have *kvstore.Installation, id string) (noted kvstore.ZooKeeper) {
	for _, n := range have.ZooKeepers {
		if n.First <= z.last && z.first <= n.Last && (noted.ID == "" || n.ID != id) {
			noted = n
		}
	}
	return noted
}

func (z zooKeeper) noted(have *kvstore.Installation, id string) string {
	return z.overlapping(have, id).ID
}

// note makes one range of those that touch.
func (z zooKeeper) note(have *kvstore.Installation, id string) {
	whole := kvstore.ZooKeeper{ID: id, Name: z.Name(), Installation: have.ID, First: z.first, Last: z.last}
	var kept []kvstore.ZooKeeper
	for _, n := range have.ZooKeepers {
		if n.ID == id && n.First <= whole.Last+1 && whole.First <= n.Last+1 {
			whole.First, whole.Last, whole.Name = min(n.First, whole.First), max(n.Last, whole.Last), n.Name
			continue
		}
		kept = append(kept, n)
	}
	have.ZooKeepers = append(kept, whole)
	slices.SortFunc(have.ZooKeepers, func(x, y kvstore.ZooKeeper) int { return cmp.Compare(x.First, y.First) })
}

func (z zooKeeper) words() words {
	return words{"ZooKeeper (" + z.Name() + ")", "workers", "--zookeeper and --zookeeper-name", "zkCli.sh"}
}

func (z zooKeeper) replaced(have *kvstore.Installation, id string) string {
	n := z.overlapping(have, id)
	return fmt.Sprintf("it has the workers from %d to %d, at %s. Or give this one workers of its own (--worker-range, --datacenter). "+
		"If that one was a mistake, or is gone for good, and what its workers reserved is over, remove it from `zookeepers` in the record (bucket %s, key %s)",
		n.First, n.Last, n.Name, bus.BucketInstallation, kvstore.InstallationKey)
}
