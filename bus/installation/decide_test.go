package installation

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus/kvstore"
	"github.com/leafbus/leafbus/snowflake"
)

// What a start does, by its data folder and what is in JetStream: C creates, J joins, W waits, R is refused.
func TestRules(t *testing.T) {
	columns := []found{free, ours, others, otherConfig, tagsLeft, away, unfit}
	letters := map[rune]outcome{'W': wait, 'R': refuse, 'C': create, 'J': join}
	for known, row := range map[string]string{"": "CJRRWWR", "A": "WJRRWWR"} {
		for i, letter := range row {
			for name, errs := range map[string][]error{
				"no places": nil, "good": {nil, nil}, "away": {errGone, nil}, "refused": {nil, allocator.ErrRefused},
				"both": {allocator.ErrRefused, errGone}, "both, the other way round": {errGone, allocator.ErrRefused},
			} {
				f := factsOf(columns[i])
				f.known = known
				for _, err := range errs {
					f.places = append(f.places, look{err: err})
				}
				want := letters[letter]
				if want == create || want == join { // then the places decide
					switch {
					case slices.Contains(errs, allocator.ErrRefused):
						want = refuse
					case slices.Contains(errs, errGone):
						want = wait
					}
				}
				then, err := f.decide()
				if then != want || (err != nil) != (want == wait || want == refuse) ||
					errors.Is(err, allocator.ErrRefused) != (want == refuse) {
					t.Errorf("folder %q, record %d, places %s: %d, want %d (%v)", known, columns[i], name, then, want, err)
				}
			}
		}
	}
}

var errGone = errors.New("it does not answer")

// factsOf are those of a generator with a database and ZooKeeper. The record is that of installation A, whose database
// is D and ZooKeeper Z; that of others is of B.
func factsOf(record found) *facts {
	want := kvstore.Installation{Store: KindMySQL, Registry: KindZooKeeper, Layout: snowflake.DefaultLayout()}
	f := &facts{record: record, want: want, have: want}
	f.have.ID, f.have.Database, f.have.ZooKeeper = "A", "D", "Z"
	switch record {
	case others:
		f.have.ID = "B"
	case otherConfig:
		f.have.Epoch = 5
	case free, tagsLeft:
		f.have = kvstore.Installation{}
	case away, unfit:
		f.have, f.err = kvstore.Installation{}, errGone
	}
	return f
}

// A refusal is one sentence that names what is concerned, and says what to do.
func TestSentences(t *testing.T) {
	place := func(of, id string) *fakePlace { return &fakePlace{name: "z9/leaf/leaf", of: of, id: id} }
	for name, c := range map[string]struct {
		known               string
		record              found
		database, zooKeeper *fakePlace
		say                 []string
	}{
		"waits for JetStream": {"A", away, nil, nil, []string{"waiting for JetStream", "installation A", errGone.Error()}},
		"lost its state":      {"A", free, nil, nil, []string{"the record of installation A", "leaf restore", "--adopt", "--data-dir"}},
		"other NATS":          {"A", others, nil, nil, []string{"installation A", "installation B", "--server"}},
		"other configuration": {"", otherConfig, nil, nil, []string{"installation A", "--epoch"}},
		"lost record":         {"", tagsLeft, nil, nil, []string{"lost the installation's record", "docs/operate.md"}},
		"their database": {"", ours, place("B", "D"), nil, []string{"the database belongs to installation B",
			"this NATS is installation A", "--server", "--mysql", "free it"}},
		"their database, new": {"", free, place("B", "D"), nil, []string{"the database belongs to installation B",
			"no installation yet", "free it"}},
		"emptied database": {"", ours, place("", ""), nil, []string{"installation A keeps its tags in another place (D;",
			"lost its state", "--mysql", "give it to A as D"}},
		"other database": {"", ours, place("A", "another"), nil, []string{"installation A keeps its tags in another place (D;",
			"is another of installation A)", "--mysql", "give it to A as D"}},
		"their ZooKeeper": {"", ours, place("A", "D"), place("B", "Z"), []string{"ZooKeeper (z9/leaf/leaf) belongs to " +
			"installation B", "this NATS is installation A", "--zookeeper-name"}},
		"emptied ZooKeeper": {"", ours, nil, place("", ""), []string{"installation A keeps its workers in another place (Z;",
			"lost its state", "give it to A as Z"}},
		"other ZooKeeper": {"", ours, nil, place("A", "another"), []string{"(Z;", "--zookeeper-name", "give it to A as Z"}},
		"database away":   {"", free, &fakePlace{err: errGone}, nil, []string{errGone.Error()}},
	} {
		f := factsOf(c.record)
		f.known = c.known
		if c.database != nil {
			f.places = append(f.places, database(c.database).look(t.Context(), f.have, false))
		}
		if c.zooKeeper != nil {
			f.places = append(f.places, zooKeeper(c.zooKeeper).look(t.Context(), f.have, false))
		}
		_, err := f.decide()
		for _, say := range c.say {
			if err == nil || !strings.Contains(err.Error(), say) || strings.Contains(err.Error(), "%!") ||
				strings.Contains(err.Error(), "\n") {
				t.Errorf("%s: it does not say %q: %v", name, say, err)
			}
		}
	}
}
