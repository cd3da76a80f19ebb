package installation

import (
	"errors"
	"fmt"
	"strings"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/kvstore"
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
	trusted                       // it was ours before: it may be asked later, before it is used
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
// before everything is known.
var rules = []struct {
	folder, record, place found
	then                  outcome
	say                   func(*facts) error
}{
	{anything, unfit, anything, refuse, (*facts).unread},
	{anything, away, anything, wait, (*facts).unread},
	{ours, free | tagsLeft, anything, wait, (*facts).witness},
	{free, tagsLeft, anything, wait, (*facts).lostRecord},
	{anything, others, anything, refuse, (*facts).otherNATS},
	{anything, otherConfig, anything, refuse, (*facts).otherConfig},
	{anything, free | ours, unfit, refuse, (*facts).ofPlace},
	{free, free, others, wait, (*facts).ofPlace},
	{anything, free | ours, others | emptied | replaced, refuse, (*facts).ofPlace},
	{anything, free | ours, away, wait, (*facts).ofPlace},
	{free, free, anything, create, nil},
	{anything, ours, anything, join, nil},
}

// facts are what a start found.
type facts struct {
	known  string               // the installation that the data folder belongs to; empty: none
	record found                // in JetStream
	have   kvstore.Installation // the record, if there is one
	want   kvstore.Installation // the configuration, as it would be on record
	err    error                // why the record is away or unfit
	places []look               // those that the generator was given
	cause  look                 // the place that decided
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
		if r.say == nil {
			return r.then, nil
		}
		err := r.say(f)
		if r.then == refuse && !errors.Is(err, allocator.ErrRefused) {
			err = fmt.Errorf("%w: %w", allocator.ErrRefused, err)
		}
		return r.then, err
	}
	// TestRules has all that can be found.
	return refuse, fmt.Errorf("%w: there is no rule for what was found: %+v", allocator.ErrRefused, *f)
}

// finds reports whether a rule that names these states of a place matches.
func (f *facts) finds(states found) bool {
	for _, l := range f.places {
		if l.found&states != 0 {
			f.cause = l
			return true
		}
	}
	return states == anything
}

func (f *facts) ofPlace() error { return f.cause.why(f.have) }

func (f *facts) unread() error {
	if f.known == "" || f.record == unfit {
		return f.err
	}
	return fmt.Errorf("waiting for JetStream, which has the record of installation %s: %w", f.known, f.err)
}

func (f *facts) witness() error {
	return fmt.Errorf("%w: waiting for the record of installation %s, to which this data folder belongs: this NATS has "+
		"no installation. It lost its state, or a single server became a cluster: run `leaf restore FILE` "+
		"(docs/cluster.md), or, without a backup, start one generator with --adopt. Or it is another NATS: name the "+
		"right --server. For a new installation, give another --data-dir", allocator.ErrUnavailable, f.known)
}

func (f *facts) lostRecord() error {
	return fmt.Errorf("%w: JetStream lost the installation's record (bucket %s, key %s), but bucket %s still has its "+
		"tags. Write the record again (docs/cluster.md); for a new installation, delete bucket %[4]s too",
		allocator.ErrUnavailable, bus.BucketInstallation, kvstore.InstallationKey, bus.BucketTags)
}

func (f *facts) otherNATS() error {
	return fmt.Errorf("this data folder belongs to installation %s, but this NATS is installation %s: name the right "+
		"--server, or another --data-dir", f.known, f.have.ID)
}

func (f *facts) otherConfig() error {
	return fmt.Errorf("the configuration is not that of installation %s: %s. Start with its settings. "+
		"For a new installation, give a new --data-dir, and with --server another NATS account",
		f.have.ID, strings.Join(differences(f.have, f.want), "; "))
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
