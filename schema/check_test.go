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
		name  string
		ddl   []string // makes Leaf's table unfit
		words []string // in the error
	}{
		{"max_id int", []string{"ALTER TABLE leaf_alloc MODIFY max_id int NOT NULL"}, []string{"max_id is int", "signed BIGINT"}},
		{"max_id unsigned", []string{"ALTER TABLE leaf_alloc MODIFY max_id bigint unsigned NOT NULL"}, []string{"max_id is bigint(20) unsigned", "signed BIGINT"}},
		{"max_id null", []string{"ALTER TABLE leaf_alloc MODIFY max_id bigint NULL"}, []string{"max_id may be NULL"}},
		{"step null", []string{"ALTER TABLE leaf_alloc MODIFY step int NULL"}, []string{"step may be NULL"}},
		{"step varchar", []string{"ALTER TABLE leaf_alloc MODIFY step varchar(20) NOT NULL"}, []string{"step is varchar(20)", "it must be an INT or"}},
		{"step unsigned", []string{"ALTER TABLE leaf_alloc MODIFY step bigint unsigned NOT NULL"}, []string{"step is bigint(20) unsigned"}},
		{"biz_tag bigint", []string{"DELETE FROM leaf_alloc", "ALTER TABLE leaf_alloc MODIFY biz_tag bigint NOT NULL"}, []string{"biz_tag is bigint(20)", "VARCHAR(128)"}},
		{"biz_tag null", []string{"ALTER TABLE leaf_alloc DROP PRIMARY KEY, ADD UNIQUE KEY (biz_tag), MODIFY biz_tag varchar(128) NULL"}, []string{"biz_tag may be NULL"}},
		{"no key", []string{"ALTER TABLE leaf_alloc DROP PRIMARY KEY"}, []string{"biz_tag is not unique", "ADD PRIMARY KEY"}},
		{"composite key", []string{"ALTER TABLE leaf_alloc DROP PRIMARY KEY, ADD PRIMARY KEY (biz_tag, step)"}, []string{"biz_tag is not unique"}},
		{"MyISAM", []string{"ALTER TABLE leaf_alloc ENGINE=MyISAM"}, []string{"engine MyISAM", "ENGINE=InnoDB"}},
		{"no biz_tag", []string{"ALTER TABLE leaf_alloc CHANGE biz_tag tag varchar(128) NOT NULL"}, []string{"no column biz_tag"}},
		{"no max_id", []string{"ALTER TABLE leaf_alloc DROP max_id"}, []string{"no column max_id"}},
		{"view", []string{"RENAME TABLE leaf_alloc TO leaf_rows", "CREATE VIEW leaf_alloc AS SELECT * FROM leaf_rows"}, []string{"it is a view"}},
		{"max_id generated", []string{"ALTER TABLE leaf_alloc DROP max_id", "ALTER TABLE leaf_alloc ADD max_id bigint AS (step * 2) STORED"}, []string{"max_id is a generated column"}},
		{"trigger", []string{"CREATE TRIGGER before_it BEFORE UPDATE ON leaf_alloc FOR EACH ROW SET NEW.max_id = OLD.max_id"}, []string{"trigger on UPDATE", "drop the trigger"}},
		{"several", []string{
			"ALTER TABLE leaf_alloc DROP PRIMARY KEY, MODIFY max_id int NULL, MODIFY step varchar(9) NOT NULL, ENGINE=MyISAM",
			"CREATE TRIGGER before_it BEFORE UPDATE ON leaf_alloc FOR EACH ROW SET NEW.step = 1",
		}, []string{"max_id is int", "max_id may be NULL", "step is varchar", "engine MyISAM", "biz_tag is not unique", "trigger on UPDATE"}},
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
			insert(t, s, "mail", 5, 10)
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
