package installation

import (
	"errors"
	"fmt"
	"strings"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus/kvstore"
	"github.com/leafbus/leafbus/internal/wire"
)

// found is what a start found in JetStream; of the data folder it is free or ours.
type found uint8

const (
	free        found = 1 << iota // there is no installation
	tagsLeft                      // there are tags and no record
	ours                          // the record of the installation that the generator is to join
	others                        // the record of another installation than that of the data folder
	otherConfig                   // the record is ours, of another configuration
	away                          // it cannot be read now
	unfit                         // it cannot be used
)

// outcome is what a start does.
type outcome int

const (
	wait   outcome = iota // look again later
	refuse                // end with exit status 1
	create                // make the installation's record
	join                  // become part of the installation, and claim what is free
)

// rules decide what a start does: the first one that names what was found in the data folder and in
// JetStream. A rule that says nothing passes on the error of the record. Only where a rule lets it
// create or join, the database and ZooKeeper decide. One that must not be used comes before one
// that is away. So a refusal comes before a wait, and nothing is created before everything is
// known.
var rules = []struct {
	folder, record found
	then           outcome
	say            string
}{
	{free | ours, unfit, refuse, ""},
	{ours, away, wait, "waiting for JetStream, which has the record of installation FOLDER"},
	{free, away, wait, ""},
	{ours, free | tagsLeft, wait, "waiting for the record of installation FOLDER, to which this data folder " +
		"belongs: this NATS has no installation. It lost its state, or a single server became a cluster: run `leaf restore " +
		"FILE` (docs/operate.md), or, without a backup, start one generator with --adopt. Or it is another NATS: name the " +
		"right --server. For a new installation, give another --data-dir"},
	{free, tagsLeft, wait, "JetStream lost the installation's record (bucket " + wire.BucketInstallation + ", key " +
		kvstore.InstallationKey + "), but bucket " + wire.BucketTags + " still has its tags. Write the record again " +
		"(docs/operate.md); for a new installation, delete bucket " + wire.BucketTags + " too"},
	{free | ours, others, refuse, "this data folder belongs to installation FOLDER, but this NATS is installation " +
		"RECORD: name the right --server, or another --data-dir"},
	{free | ours, otherConfig, refuse, "the configuration is not that of installation RECORD: DIFFERENCES. Start " +
		"with its settings. For a new installation, give a new --data-dir, and with --server another NATS account"},
	{free, free, create, ""},
	{free | ours, ours, join, ""},
}

// facts are what a start found.
type facts struct {
	known  string               // the installation that the data folder belongs to; empty: none
	record found                // in JetStream
	have   kvstore.Installation // the record, if there is one
	want   kvstore.Installation // the configuration, as it would be on record
	err    error                // why the record is away or unfit
	places []look               // those that the generator was given, and that are not known to be right
}

// decide returns what a start does, and why if it neither creates nor joins. The error of a refusal
// matches [allocator.ErrRefused].
func (f *facts) decide() (outcome, error) {
	folder := free
	if f.known != "" {
		folder = ours
	}
	for _, r := range rules {
		if r.folder&folder == 0 || r.record&f.record == 0 {
			continue
		}
		if r.then == wait || r.then == refuse {
			return r.then, f.why(r.then, r.say)
		}
		switch err := f.placesErr(); {
		case errors.Is(err, allocator.ErrRefused):
			return refuse, err
		case err != nil:
			return wait, err
		}
		return r.then, nil
	}
	// TestRules has all that can be found.
	return refuse, fmt.Errorf("%w: there is no rule for what was found: %+v", allocator.ErrRefused, *f)
}

// placesErr returns why a place must not be used; else why one cannot be used now.
func (f *facts) placesErr() (err error) {
	for _, l := range f.places {
		if errors.Is(l.err, allocator.ErrRefused) {
			return l.err
		}
		if l.err != nil {
			err = l.err
		}
	}
	return err
}

// why is the error of a rule.
func (f *facts) why(then outcome, say string) error {
	say = strings.NewReplacer("FOLDER", f.known, "RECORD", f.have.ID, "DIFFERENCES",
		strings.Join(differences(f.have, f.want), "; ")).Replace(say)
	err := f.err
	switch {
	case err == nil:
		err = errors.New(say)
		if then == wait {
			err = fmt.Errorf("%w: %s", allocator.ErrUnavailable, say)
		}
	case say != "":
		err = fmt.Errorf("%s: %w", say, err)
	}
	if then == refuse && !errors.Is(err, allocator.ErrRefused) {
		err = fmt.Errorf("%w: %w", allocator.ErrRefused, err)
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
