package installation

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus/kvstore"
	"github.com/leafbus/leafbus/snowflake"
)

// names of what a start can find.
var names = map[string]found{
	"free": free, "ours": ours, "others": others, "emptied": emptied, "replaced": replaced, "away": away,
	"unfit": unfit, "otherConfig": otherConfig, "tagsLeft": tagsLeft,
}

var letters = map[string]outcome{"W": wait, "R": refuse, "C": create, "J": join}

// What a start does, by what it finds: C creates, J joins, W waits, R is refused. A row is a data folder and the
// record in JetStream; "each" means that the database and ZooKeeper decide by the second table.
const (
	recordTable = `
		folder  free ours others otherConfig tagsLeft away unfit
		free    each each R      R           W        W    R
		ours    W    each R      R           W        W    R`

	// A row is a database, a column ZooKeeper. The generator goes on where there is a dot: it creates the record
	// if there is none, and joins else.
	placeTable = `
		         unused free ours away others emptied replaced unfit
		unused   .      .    .    W    R      R       R        R
		free     .      .    .    W    R      R       R        R
		ours     .      .    .    W    R      R       R        R
		away     W      W    W    W    R      R       R        R
		others   R      R    R    R    R      R       R        R
		emptied  R      R    R    R    R      R       R        R
		replaced R      R    R    R    R      R       R        R
		unfit    R      R    R    R    R      R       R        R`
)

// cells calls f with each cell of a table.
func cells(table string, f func(row, column, cell string)) {
	var columns []string
	for i, line := range strings.Split(strings.TrimSpace(table), "\n") {
		fields := strings.Fields(line)
		if i == 0 {
			columns = fields
			if table == recordTable {
				columns = fields[1:]
			}
			continue
		}
		for i, cell := range fields[1:] {
			f(fields[0], columns[i], cell)
		}
	}
}

func TestRules(t *testing.T) {
	checked := 0
	cells(recordTable, func(folder, record, whole string) {
		cells(placeTable, func(db, zk, cell string) {
			want, ok := letters[whole]
			switch {
			case ok:
			case cell != ".":
				want = letters[cell]
			case record == "free":
				want = create
			default:
				want = join
			}
			f := factsOf(names[record], names[db], names[zk])
			if folder == "ours" {
				f.known = "A"
			}
			then, err := f.decide()
			about := fmt.Sprintf("folder %s, record %s, database %s, ZooKeeper %s", folder, record, db, zk)
			if then != want {
				t.Errorf("%s: %d, want %d (%v)", about, then, want, err)
			}
			if (err != nil) != (want == wait || want == refuse) || errors.Is(err, allocator.ErrRefused) != (want == refuse) {
				t.Errorf("%s: outcome %d with the error %v", about, then, err)
			}
			checked++
		})
	})
	if checked != 2*7*8*8 {
		t.Errorf("%d combinations were checked", checked)
	}
}

var errGone = errors.New("it does not answer")

// factsOf are those of installation A, whose database is D and ZooKeeper Z; B is another installation.
func factsOf(record, db, zk found) *facts {
	want := kvstore.Installation{Store: KindMySQL, Registry: KindZooKeeper, Layout: snowflake.DefaultLayout()}
	f := &facts{record: record, want: want, have: want, err: errGone}
	f.have.ID, f.have.Database, f.have.ZooKeeper = "A", "D", "Z"
	switch record {
	case others:
		f.have.ID = "B"
	case otherConfig:
		f.have.Epoch = 5
	case free, away, tagsLeft, unfit:
		f.have = kvstore.Installation{}
	}
	sight := func(what found, u *use, id string) {
		l := look{found: what, use: u, of: "A", id: id}
		switch what {
		case 0: // not used
			return
		case away, unfit:
			l.err = errGone
		case others:
			l.of = "B"
		case emptied:
			l.of, l.id = "", ""
		case replaced:
			l.id = "another"
		}
		f.places = append(f.places, l)
	}
	sight(db, database(&fakePlace{name: "db/leaf"}), "D")
	sight(zk, zooKeeper(&fakePlace{name: "z9/leaf/leaf"}), "Z")
	return f
}

// A refusal is one sentence that names what is concerned, and says what to do.
func TestSentences(t *testing.T) {
	for name, c := range map[string]struct {
		known            string
		record, database found
		zooKeeper        found
		say              []string
	}{
		"waits for JetStream": {"A", away, 0, 0, []string{"waiting for JetStream", "installation A", errGone.Error()}},
		"lost its state":      {"A", free, 0, 0, []string{"the record of installation A", "leaf restore", "--adopt", "--data-dir"}},
		"other NATS":          {"A", others, 0, 0, []string{"installation A", "installation B", "--server"}},
		"other configuration": {"", otherConfig, 0, 0, []string{"installation A", "--epoch"}},
		"lost record":         {"", tagsLeft, 0, 0, []string{"lost the installation's record", "docs/operate.md"}},
		"their database":      {"", ours, others, 0, []string{"the database belongs to installation B", "this NATS is installation A", "--server", "--mysql", "free it"}},
		"their database, new": {"", free, others, 0, []string{"the database belongs to installation B", "no installation yet", "free it"}},
		"emptied database":    {"", ours, emptied, 0, []string{"installation A keeps its tags in another place (D;", "lost its state", "--mysql", "give it to A as D"}},
		"other database":      {"", ours, replaced, 0, []string{"installation A keeps its tags in another place (D;", "is another of installation A)", "--mysql", "give it to A as D"}},
		"their ZooKeeper":     {"", ours, ours, others, []string{"ZooKeeper (z9/leaf/leaf) belongs to installation B", "this NATS is installation A", "--zookeeper-name"}},
		"emptied ZooKeeper":   {"", ours, ours, emptied, []string{"installation A keeps its workers in another place (Z;", "lost its state", "give it to A as Z"}},
		"other ZooKeeper":     {"", ours, ours, replaced, []string{"(Z;", "--zookeeper-name", "give it to A as Z"}},
		"database away":       {"", free, away, away, []string{errGone.Error()}},
	} {
		f := factsOf(c.record, c.database, c.zooKeeper)
		f.known = c.known
		_, err := f.decide()
		for _, say := range c.say {
			if err == nil || !strings.Contains(err.Error(), say) || strings.Contains(err.Error(), "%!") || strings.Contains(err.Error(), "\n") {
				t.Errorf("%s: it does not say %q: %v", name, say, err)
			}
		}
	}
}
