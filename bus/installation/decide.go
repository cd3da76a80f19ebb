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
	unused      found = 1 << iota // the generator was not given it
	free                          // it belongs to no installation
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
	unusable = others | emptied | replaced | unfit
)

// outcome is what a start does.
type outcome int

const (
	wait   outcome = iota // look again later
	refuse                // end with exit status 1
	create                // make the installation's record
	join                  // become part of the installation, and claim what is free
)

// rule says what a start does if it found this. A rule matches if each thing is among those that
// it names.
type rule struct {
	folder, record, database, zooKeeper found
	then                                outcome
	say                                 func(*facts) error
}

// rules decide what a start does. The first rule that matches counts. So a refusal comes before a wait, and
// nothing is created before everything is known.
var rules = []rule{
	{folder: anything, record: unfit, database: anything, zooKeeper: anything, then: refuse, say: (*facts).unfit},
	{folder: anything, record: away, database: anything, zooKeeper: anything, then: wait, say: (*facts).away},
	{folder: ours, record: free | tagsLeft, database: anything, zooKeeper: anything, then: wait, say: (*facts).witness},
	{folder: free, record: tagsLeft, database: anything, zooKeeper: anything, then: wait, say: (*facts).lostRecord},
	{folder: anything, record: others, database: anything, zooKeeper: anything, then: refuse, say: (*facts).otherNATS},
	{folder: anything, record: otherConfig, database: anything, zooKeeper: anything, then: refuse, say: (*facts).otherConfig},
	{folder: free, record: free, database: others, zooKeeper: ^unfit, then: wait, say: (*facts).ofDatabase},
	{folder: free, record: free, database: ^unusable, zooKeeper: others, then: wait, say: (*facts).ofZooKeeper},
	{folder: anything, record: free | ours, database: unusable, zooKeeper: anything, then: refuse, say: (*facts).ofDatabase},
	{folder: anything, record: free | ours, database: anything, zooKeeper: unusable, then: refuse, say: (*facts).ofZooKeeper},
	{folder: anything, record: free | ours, database: away, zooKeeper: anything, then: wait, say: (*facts).ofDatabase},
	{folder: anything, record: free | ours, database: anything, zooKeeper: away, then: wait, say: (*facts).ofZooKeeper},
	{folder: free, record: free, database: anything, zooKeeper: anything, then: create},
	{folder: anything, record: ours, database: anything, zooKeeper: anything, then: join},
}

// facts are what a start found.
type facts struct {
	known  string               // the installation that the data folder belongs to; empty: none
	record found                // in JetStream
	have   kvstore.Installation // the record, if there is one
	want   kvstore.Installation // the configuration, as it would be on record
	err    error                // why the record is away or unfit

	database, zooKeeper look
}

// decide returns what a start does, and why if it neither creates nor joins. The error of a refusal
// matches [allocator.ErrRefused].
func (f *facts) decide() (outcome, error) {
	folder := free
	if f.known != "" {
		folder = ours
	}
	for _, r := range rules {
		if r.folder&folder == 0 || r.record&f.record == 0 || r.database&f.database.found == 0 || r.zooKeeper&f.zooKeeper.found == 0 {
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
	return refuse, fmt.Errorf("%w: there is no rule for what was found: %+v", allocator.ErrRefused, *f) // TestRules has all
}

func (f *facts) away() error {
	if f.known == "" {
		return f.err
	}
	return fmt.Errorf("waiting for JetStream, which has the record of installation %s: %w", f.known, f.err)
}

func (f *facts) unfit() error { return f.err }

func (f *facts) witness() error {
	return fmt.Errorf("%w: waiting for the record of installation %s, to which this data folder belongs: this NATS has no "+
		"installation. It lost its state, or a single server became a cluster: run `leaf restore FILE` (docs/cluster.md), or, "+
		"without a backup, start one generator with --adopt. Or it is another NATS: name the right --server. "+
		"For a new installation, give another --data-dir", allocator.ErrUnavailable, f.known)
}

func (f *facts) lostRecord() error {
	return fmt.Errorf("%w: JetStream lost the installation's record (bucket %s, key %s), but bucket %s still has its tags. "+
		"Write the record again (docs/cluster.md); for a new installation, delete bucket %[4]s too",
		allocator.ErrUnavailable, bus.BucketInstallation, kvstore.InstallationKey, bus.BucketTags)
}

func (f *facts) otherNATS() error {
	return fmt.Errorf("this data folder belongs to installation %s, but this NATS is installation %s: name the right --server, or another --data-dir",
		f.known, f.have.ID)
}

func (f *facts) otherConfig() error {
	return fmt.Errorf("the configuration is not that of installation %s: %s. Start with its settings. "+
		"For a new installation, give a new --data-dir, and with --server another NATS account", f.have.ID, strings.Join(differences(f.have, f.want), "; "))
}

func (f *facts) ofDatabase() error  { return f.database.why(f.have) }
func (f *facts) ofZooKeeper() error { return f.zooKeeper.why(f.have) }

// differences names what is not the same in want, but for ID and time.
func differences(have, want kvstore.Installation) []string {
	var d []string
	add := func(name, has, wanted string) {
		if has != wanted {
			d = append(d, fmt.Sprintf("%s is %s there and %s here", name, has, wanted))
		}
	}
	add("the store of tags (--mysql)", have.Store, want.Store)
	add("the registry of workers (--zookeeper)", have.Registry, want.Registry)
	return append(d, have.Layout.Differences(want.Layout)...)
}
