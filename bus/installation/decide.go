package installation

import (
	"errors"
	"fmt"
	"strings"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus/kvstore"
	"github.com/leafbus/leafbus/internal/wire"
)

// found is what a start found in one of the things that belong to an installation.
type found uint16

const (
	free        found = 1 << iota // it belongs to no installation
	ours                          // it belongs to the installation that the generator is to join
	others                        // it belongs to another installation
	emptied                       // it belongs to none, although the record notes it
	replaced                      // it is not the one that the record notes
	away                          // its owner cannot be read now
	unfit                         // it cannot be used
	otherConfig                   // the record is ours, of another configuration
	tagsLeft                      // JetStream has tags and no record

	anything = ^found(0)
)

// outcome is what a start does.
type outcome int

const (
	wait   outcome = iota // look again later
	refuse                // end with exit status 1
	create                // make the installation's record
	join                  // become part of the installation, and claim what is free
)

// rules decide what a start does. The first rule counts of which the data folder, the record and one of the places
// (the database, ZooKeeper) are among those that it names. So a refusal comes before a wait, and nothing is created
// before everything is known. A rule that says nothing passes on the error of the record or of the place.
var rules = []struct {
	folder, record, place found
	then                  outcome
	say                   string
}{
	{anything, unfit, anything, refuse, ""},
	{ours, away, anything, wait, "waiting for JetStream, which has the record of installation FOLDER"},
	{free, away, anything, wait, ""},
	{ours, free | tagsLeft, anything, wait, "waiting for the record of installation FOLDER, to which this data folder " +
		"belongs: this NATS has no installation. It lost its state, or a single server became a cluster: run `leaf restore " +
		"FILE` (docs/operate.md), or, without a backup, start one generator with --adopt. Or it is another NATS: name the " +
		"right --server. For a new installation, give another --data-dir"},
	{free, tagsLeft, anything, wait, "JetStream lost the installation's record (bucket " + wire.BucketInstallation +
		", key " +
		kvstore.InstallationKey + "), but bucket " + wire.BucketTags + " still has its tags. Write the record again " +
		"(docs/operate.md); for a new installation, delete bucket " + wire.BucketTags + " too"},
	{anything, others, anything, refuse,
		"this data folder belongs to installation FOLDER, but this NATS is installation " +
			"RECORD: name the right --server, or another --data-dir"},
	{anything, otherConfig, anything, refuse, "the configuration is not that of installation RECORD: DIFFERENCES. Start " +
		"with its settings. For a new installation, give a new --data-dir, and with --server another NATS account"},
	{anything, free | ours, unfit, refuse, ""},
	{anything, free | ours, others | emptied | replaced, refuse, ""},
	{anything, free | ours, away, wait, ""},
	{free, free, anything, create, ""},
	{anything, ours, anything, join, ""},
}

// facts are what a start found.
type facts struct {
	known  string               // the installation that the data folder belongs to; empty: none
	record found                // in JetStream
	have   kvstore.Installation // the record, if there is one
	want   kvstore.Installation // the configuration, as it would be on record
	err    error                // why the record is away or unfit
	places []look               // those that the generator was given, and that are not known to be right
	cause  error                // what is wrong with the place that decided
}

// decide returns what a start does, and why if it neither creates nor joins. The error of a refusal
// matches [allocator.ErrRefused].
func (f *facts) decide() (outcome, error) {
	folder := free
	if f.known != "" {
		folder = ours
	}
	for _, r := range rules {
		if r.folder&folder == 0 || r.record&f.record == 0 || !f.finds(r.place) {
			continue
		}
		if r.then == create || r.then == join {
			return r.then, nil
		}
		return r.then, f.why(r.then, r.say)
	}
	// TestRules has all that can be found.
	return refuse, fmt.Errorf("%w: there is no rule for what was found: %+v", allocator.ErrRefused, *f)
}

// finds reports whether a rule that names these states of a place matches.
func (f *facts) finds(states found) bool {
	if states == anything {
		f.cause = nil
		return true
	}
	for _, l := range f.places {
		if l.found&states != 0 {
			f.cause = l.why(f.have)
			return true
		}
	}
	return false
}

// why is the error of a rule.
func (f *facts) why(then outcome, say string) error {
	say = strings.NewReplacer("FOLDER", f.known, "RECORD", f.have.ID, "DIFFERENCES",
		strings.Join(differences(f.have, f.want), "; ")).Replace(say)
	err := f.cause
	switch {
	case err != nil:
	case f.err != nil && say != "":
		err = fmt.Errorf("%s: %w", say, f.err)
	case f.err != nil:
		err = f.err
	default:
		err = errors.New(say)
	}
	switch {
	case then == refuse && !errors.Is(err, allocator.ErrRefused):
		return fmt.Errorf("%w: %w", allocator.ErrRefused, err)
	case then == wait && f.cause == nil && f.err == nil:
		return fmt.Errorf("%w: %w", allocator.ErrUnavailable, err)
	}
	return err
}

// differences names what is not the same in want, but for ID and time.
func differences(have, want kvstore.Installation) (d []string) {
	for _, s := range [][3]string{
		{"the store of tags (--mysql)", have.Store, want.Store},
		{"the registry of workers (--zookeeper)", have.Registry, want.Registry},
	} {
		if s[1] != s[2] {
			d = append(d, fmt.Sprintf("%s is %s there and %s here", s[0], s[1], s[2]))
		}
	}
	return append(d, have.Layout.Differences(want.Layout)...)
}
