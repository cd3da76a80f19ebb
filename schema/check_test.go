package schema

import (
	"strings"
	"testing"

	"github.com/leafbus/leafbus/allocator"
)

// TestRefused opens tables on which IDs could repeat, or which cannot be used.
func TestRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		ddl    []string // makes Leaf's table unfit
		words  []string // in the error
		repair []string // makes it fit again
	}{
		{"max_id int", []string{"ALTER TABLE leaf_alloc MODIFY max_id int NOT NULL"}, []string{"max_id is int", "signed BIGINT"},
			[]string{"ALTER TABLE leaf_alloc MODIFY max_id bigint NOT NULL"}},
		{"max_id unsigned", []string{"ALTER TABLE leaf_alloc MODIFY max_id bigint unsigned NOT NULL"}, []string{"max_id is bigint(20) unsigned", "signed BIGINT"}, nil},
		{"max_id zerofill", []string{"ALTER TABLE leaf_alloc MODIFY max_id bigint zerofill NOT NULL"}, []string{"max_id is bigint(20) unsigned zerofill"}, nil},
		{"max_id varchar", []string{"ALTER TABLE leaf_alloc MODIFY max_id varchar(20) NOT NULL"}, []string{"max_id is varchar(20)"}, nil},
		{"max_id decimal", []string{"ALTER TABLE leaf_alloc MODIFY max_id decimal(30) NOT NULL"}, []string{"max_id is decimal(30,0)"}, nil},
		{"max_id double", []string{"ALTER TABLE leaf_alloc MODIFY max_id double NOT NULL"}, []string{"max_id is double"}, nil},
		{"max_id null", []string{"ALTER TABLE leaf_alloc MODIFY max_id bigint NULL"}, []string{"max_id may be NULL"}, nil},
		{"step null", []string{"ALTER TABLE leaf_alloc MODIFY step int NULL"}, []string{"step may be NULL"}, nil},
		{"step varchar", []string{"ALTER TABLE leaf_alloc MODIFY step varchar(20) NOT NULL"}, []string{"step is varchar(20)", "it must be an INT or"},
			[]string{"ALTER TABLE leaf_alloc MODIFY step int NOT NULL"}},
		{"step unsigned", []string{"ALTER TABLE leaf_alloc MODIFY step bigint unsigned NOT NULL"}, []string{"step is bigint(20) unsigned"}, nil},
		{"biz_tag bigint", []string{"DELETE FROM leaf_alloc", "ALTER TABLE leaf_alloc MODIFY biz_tag bigint NOT NULL"}, []string{"biz_tag is bigint(20)", "VARCHAR(128)"}, nil},
		{"biz_tag null", []string{"ALTER TABLE leaf_alloc DROP PRIMARY KEY, ADD UNIQUE KEY (biz_tag), MODIFY biz_tag varchar(128) NULL"}, []string{"biz_tag may be NULL"}, nil},
		{"no key", []string{"ALTER TABLE leaf_alloc DROP PRIMARY KEY"}, []string{"biz_tag is not unique", "ADD PRIMARY KEY"},
			[]string{"ALTER TABLE leaf_alloc ADD PRIMARY KEY (biz_tag)"}},
		{"plain index", []string{"ALTER TABLE leaf_alloc DROP PRIMARY KEY, ADD KEY (biz_tag)"}, []string{"biz_tag is not unique"}, nil},
		{"composite key", []string{"ALTER TABLE leaf_alloc DROP PRIMARY KEY, ADD PRIMARY KEY (biz_tag, step)"}, []string{"biz_tag is not unique"}, nil},
		{"composite key behind", []string{"ALTER TABLE leaf_alloc DROP PRIMARY KEY, ADD PRIMARY KEY (step, biz_tag)"}, []string{"biz_tag is not unique"}, nil},
		{"other key", []string{"ALTER TABLE leaf_alloc DROP PRIMARY KEY, ADD id int AUTO_INCREMENT PRIMARY KEY"}, []string{"biz_tag is not unique"}, nil},
		{"MyISAM", []string{"ALTER TABLE leaf_alloc ENGINE=MyISAM"}, []string{"engine MyISAM", "ENGINE=InnoDB"},
			[]string{"ALTER TABLE leaf_alloc ENGINE=InnoDB"}},
		{"Aria", []string{"ALTER TABLE leaf_alloc ENGINE=Aria"}, []string{"engine Aria"}, nil},
		{"MEMORY", []string{"ALTER TABLE leaf_alloc ENGINE=MEMORY"}, []string{"engine MEMORY"}, nil},
		{"no biz_tag", []string{"ALTER TABLE leaf_alloc CHANGE biz_tag tag varchar(128) NOT NULL"}, []string{"no column biz_tag"}, nil},
		{"no max_id", []string{"ALTER TABLE leaf_alloc DROP max_id"}, []string{"no column max_id"},
			[]string{"ALTER TABLE leaf_alloc ADD max_id bigint NOT NULL"}},
		{"no step", []string{"ALTER TABLE leaf_alloc DROP step"}, []string{"no column step"}, nil},
		{"no columns", []string{"ALTER TABLE leaf_alloc DROP step, DROP max_id"}, []string{"no column max_id"}, nil},
		{"view", []string{"RENAME TABLE leaf_alloc TO leaf_rows", "CREATE VIEW leaf_alloc AS SELECT * FROM leaf_rows"}, []string{"it is a view"},
			[]string{"DROP VIEW leaf_alloc", "RENAME TABLE leaf_rows TO leaf_alloc"}},
		{"max_id generated", []string{"ALTER TABLE leaf_alloc DROP max_id", "ALTER TABLE leaf_alloc ADD max_id bigint AS (step * 2) STORED"}, []string{"max_id is a generated column"}, nil},
		{"step generated", []string{"ALTER TABLE leaf_alloc DROP step", "ALTER TABLE leaf_alloc ADD step bigint AS (1000) VIRTUAL"}, []string{"step is a generated column"}, nil},
		{"trigger after", []string{"CREATE TRIGGER after_it AFTER UPDATE ON leaf_alloc FOR EACH ROW SET @n = NEW.max_id"}, []string{"trigger on UPDATE"}, nil},
		{"trigger", []string{"CREATE TRIGGER before_it BEFORE UPDATE ON leaf_alloc FOR EACH ROW SET NEW.max_id = OLD.max_id"}, []string{"trigger on UPDATE", "drop the trigger"},
			[]string{"DROP TRIGGER before_it"}},
		{"several", []string{
			"ALTER TABLE leaf_alloc DROP PRIMARY KEY, MODIFY max_id int NULL, MODIFY step varchar(9) NOT NULL, ENGINE=MyISAM",
			"CREATE TRIGGER before_it BEFORE UPDATE ON leaf_alloc FOR EACH ROW SET NEW.step = 1",
		}, []string{"max_id is int", "max_id may be NULL", "step is varchar", "engine MyISAM", "biz_tag is not unique", "trigger on UPDATE"}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dsn := leafDatabase(t, "description", "utf8mb4_general_ci")
			execute(t, dsn, "INSERT INTO leaf_alloc (biz_tag, max_id, step) VALUES ('order', 77, 10)")
			execute(t, dsn, c.ddl...)
			before := snapshot(t, dsn, "leaf_alloc")
			s := prepare(t, dsn, &notes{})
			err := s.Open(within(t))
			wantError(t, "Open", err, allocator.ErrRefused)
			for _, word := range append(c.words, "leaf_alloc") {
				if err == nil || !strings.Contains(err.Error(), word) {
					t.Errorf("Open does not say %q: %v", word, err)
				}
			}
			_, _, err = s.Advance(within(t), "order", 1, 10, 1)
			wantError(t, "Advance", err, allocator.ErrUnavailable)
			if others := ask[int](t, dsn, "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name IN ('leaf_mark', 'leaf_installation')"); others != 0 {
				t.Errorf("%d tables were put beside it", others)
			}
			if after := snapshot(t, dsn, "leaf_alloc"); after != before {
				t.Errorf("the table was changed:\n%s\nwas:\n%s", after, before)
			}
			if c.repair == nil {
				return
			}
			execute(t, dsn, c.repair...)
			if err := s.Open(within(t)); err != nil {
				t.Fatalf("Open, repaired: %v", err)
			}
			advance(t, s, "order", 1, 1)
		})
	}
}

// TestAccepted opens tables that operators have changed in ways that do no harm.
func TestAccepted(t *testing.T) {
	t.Parallel()
	for name, ddl := range map[string][]string{
		"unique key":  {"ALTER TABLE leaf_alloc DROP PRIMARY KEY, ADD id int AUTO_INCREMENT PRIMARY KEY FIRST, ADD UNIQUE KEY (biz_tag)"},
		"columns":     {"ALTER TABLE leaf_alloc ADD owner varchar(20) NOT NULL DEFAULT 'nobody' FIRST, ADD note text, ADD doubled bigint AS (step * 2)"},
		"indexes":     {"ALTER TABLE leaf_alloc ADD KEY (update_time), ADD KEY (biz_tag, step), ADD UNIQUE KEY (biz_tag, max_id)"},
		"char":        {"ALTER TABLE leaf_alloc MODIFY biz_tag char(128) NOT NULL"},
		"short":       {"ALTER TABLE leaf_alloc MODIFY biz_tag varchar(32) NOT NULL"},
		"step bigint": {"ALTER TABLE leaf_alloc MODIFY step bigint NOT NULL"},
		"step small":  {"ALTER TABLE leaf_alloc MODIFY step smallint unsigned NOT NULL"},
		"partitions":  {"ALTER TABLE leaf_alloc PARTITION BY KEY (biz_tag) PARTITIONS 4"},
		"capitals":    {"ALTER TABLE leaf_alloc CHANGE biz_tag BIZ_TAG varchar(128) NOT NULL, CHANGE max_id MAX_ID bigint NOT NULL DEFAULT 1, CHANGE step Step int NOT NULL"},
		"no update":   {"ALTER TABLE leaf_alloc DROP update_time"},
		"datetime":    {"ALTER TABLE leaf_alloc MODIFY update_time datetime NULL", "UPDATE leaf_alloc SET update_time = NULL"},
		"no time":     {"SET sql_mode = ''", "ALTER TABLE leaf_alloc MODIFY update_time timestamp NOT NULL DEFAULT 0", "UPDATE leaf_alloc SET update_time = 0"},
		"triggers": {
			"CREATE TRIGGER before_it BEFORE INSERT ON leaf_alloc FOR EACH ROW SET @n = NEW.max_id",
			"CREATE TRIGGER after_it AFTER DELETE ON leaf_alloc FOR EACH ROW SET @n = OLD.max_id",
		},
		"no default": {"ALTER TABLE leaf_alloc MODIFY description varchar(256) NOT NULL"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dsn := leafDatabase(t, "description", "utf8mb4_general_ci")
			execute(t, dsn, "INSERT INTO leaf_alloc (biz_tag, max_id, step, description) VALUES ('order', 77, 10, '')")
			execute(t, dsn, ddl...)
			s := newDatabase(t, dsn)
			if r := advance(t, s, "order", 1, 1); r.First != 77 || r.Last != 86 {
				t.Errorf("Advance: %+v", r)
			}
			if r := advance(t, s, "order", 20, 1); r.First != 87 || r.Last != 106 {
				t.Errorf("Advance: %+v", r)
			}
			if max := maxID(t, dsn, "order"); max != 107 {
				t.Errorf("max_id is %d", max)
			}
			insert(t, s, "mail", 5, 10)
			if all := rows(t, s); len(all) != 2 || all["mail"].MaxID != 5 || all["order"].MaxID != 107 {
				t.Errorf("Rows: %+v", all)
			}
			if err := s.Raise(within(t), "order", 200, nil, new("text")); err != nil {
				t.Errorf("Raise: %v", err)
			}
			wantRow(t, s, allocator.Row{Name: "order", MaxID: 200, Step: 10, Description: "text"})
			if err := s.Remove(within(t), "order", 1, ""); err != nil {
				t.Errorf("Remove: %v", err)
			}
		})
	}
}

// TestIndexIsUsed locks the row of one tag: a statement that had to search for
// its row would wait for it.
func TestIndexIsUsed(t *testing.T) {
	t.Parallel()
	for _, collation := range append(collations, "ucs2_general_ci") {
		t.Run(collation, func(t *testing.T) {
			t.Parallel()
			dsn := leafDatabase(t, "description", collation)
			execute(t, dsn, "INSERT INTO leaf_alloc (biz_tag, max_id, step) VALUES ('locked', 1, 10), ('free', 1, 10), ('other', 1, 10)")
			s := newDatabase(t, dsn)
			lock(t, dsn, "SELECT * FROM leaf_alloc WHERE biz_tag = 'locked' FOR UPDATE")
			for range 3 {
				advance(t, s, "free", 1, 1)
			}
			if err := s.Raise(within(t), "free", 200, nil, new("flows")); err != nil {
				t.Errorf("Raise: %v", err)
			}
			peek(t, s, "free")
			if err := s.Remove(within(t), "other", 1, ""); err != nil {
				t.Errorf("Remove: %v", err)
			}
			insert(t, s, "new", 1, 10)
		})
	}
}
