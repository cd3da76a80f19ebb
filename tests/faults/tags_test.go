package faults

import (
	"fmt"
	"strings"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/tests/kit"
	"github.com/leafbus/leafbus/tests/kit/callers"
)

// tags are what operators do to tags beside generators that serve them.
var tags = []scenario{
	{
		fault: "a tag is deleted, and made again", in: []setup{kv, inMySQL}, fails: callers.Refused(bus.UnknownTag),
		strike: func(in *installation) {
			for round := range 4 {
				if in.mysql && round > 1 {
					in.backUp()
				}
				in.ahead(1000)
				in.leaf("tag", "rm", order, "--yes")
				if in.mysql && round > 1 {
					in.sql("DELETE FROM saved_leaf_alloc WHERE biz_tag = 'order'", "DELETE FROM saved_leaf_mark")
					in.setBack() // to a moment before there was such a tag
				}
				if round%2 == 0 {
					in.refused(order, 1, bus.UnknownTag, "")
				}
				in.leaf("tag", "add", order, "--step", "100")
				in.ahead(1000)
			}
		},
	},
	{
		fault: "an opaque tag is deleted, and made again", in: []setup{kv, inMySQL}, tags: []string{coupon, snowflakes},
		fails: callers.Refused(bus.UnknownTag),
		strike: func(in *installation) {
			in.leaf("tag", "rm", coupon, "--yes")
			in.leaf("tag", "add", coupon, "--opaque=53", "--step", "100")
			in.more(100) // none of them came before
		},
	},
	{
		// Also after a deletion, and whichever generator is asked: one that is cut off could still answer from memory.
		fault: "a name is to get another order or kind", in: []setup{kv, inMySQL}, tags: none,
		strike: func(in *installation) {
			kinds := map[string]string{"trend": "", "strict": `,"order":"strict"`, "opaque": `,"opaque":"53"`, "opaque 63": `,"opaque":"63"`}
			for kind, field := range kinds {
				tag := "of-" + strings.ReplaceAll(kind, " ", "")
				in.create(fmt.Sprintf(`{"tag":%q%s}`, tag, field))
				highest := in.take(tag)
				for _, state := range []string{"live", "deleted"} {
					for other, wrong := range kinds {
						err := bus.ReplyError(in.ask(bus.SubjectTagsCreate, fmt.Sprintf(`{"tag":%q%s}`, tag, wrong)))
						if other != kind && !is(err, bus.Conflict) || other == kind && state == "live" && !is(err, bus.Exists) {
							in.Errorf("a %s tag of the name of a %s %s one: %v", other, state, kind, err)
						}
					}
					if id := in.take(tag); id <= highest && !strings.HasPrefix(kind, "opaque") { // the deleted one was made again
						in.Errorf("ID %d of the %s tag came after %d", id, kind, highest)
					}
					in.leaf("tag", "rm", tag, "--yes")
				}
			}
		},
	},
	{
		fault: "SQL makes a tag, and moves it back", in: []setup{mysqlAlone}, tags: none,
		strike: func(in *installation) {
			in.sql("INSERT INTO leaf_alloc (biz_tag, max_id, step) VALUES ('sql', 77, 100)")
			if id := in.take("sql"); id != 77 {
				in.Errorf("the first ID is %d", id)
			}
			in.leaf("tag", "set", idle, "--max-id", "1000000")
			in.sql("UPDATE leaf_alloc SET max_id = 1", "DELETE FROM leaf_mark")
			in.stop(0)
			in.forgetFolder(0)
			in.again(0)
			in.above("sql", 78)
			in.above(idle, 1_000_000)
			kit.Leaf(in.T, "tag", "set", idle, "--max-id", "500000", "-s", in.url).Want(in.T, 1, "conflict")
		},
	},
	{
		// Leaf's own script has a collation for which the case of letters does not count.
		fault: "the table was Leaf's", in: []setup{mysqlEmpty}, tags: none,
		strike: func(in *installation) {
			in.sql("CREATE TABLE leaf_alloc (biz_tag varchar(128) NOT NULL DEFAULT '', max_id bigint(20) NOT NULL DEFAULT '1', "+
				"step int(11) NOT NULL, `desc` varchar(256) DEFAULT NULL, update_time timestamp NOT NULL DEFAULT CURRENT_TIMESTAMP "+
				"ON UPDATE CURRENT_TIMESTAMP, PRIMARY KEY (biz_tag)) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_general_ci",
				"INSERT INTO leaf_alloc (biz_tag, max_id, step) VALUES ('Shop.Order', 9007199254740993, 2000), ('coupon', 77, 3)")
			in.join()
			for tag, first := range map[string]int64{"Shop.Order": 9007199254740993, "coupon": 77} {
				if id := in.take(tag); id != first {
					in.Errorf("%s begins with %d, want %d", tag, id, first)
				}
			}
			in.refused("shop.order", 1, bus.UnknownTag, "")
			maxID := in.maxID("Shop.Order")
			in.stop(0)
			in.again(0)
			if id := in.take("Shop.Order"); id != maxID {
				in.Errorf("after a restart the next ID is %d, and max_id was %d", id, maxID)
			}
		},
	},
}
