package generator_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/leafbus/leafbus/bus/admin"
	"github.com/leafbus/leafbus/internal/natskit"
	"github.com/leafbus/leafbus/internal/testkit"
)

// exchange is a request, and what is in its answer.
type exchange struct{ subject, body, code, reply string }

// administer sends the requests, one after the other, to a generator with the tag order and the strict tag bill.
func administer(t *testing.T, exchanges ...exchange) {
	t.Helper()
	s := natskit.Start(t)
	store := inJetStream(t, s)
	start(t, s, "one", store, keeping(store))
	nc := natskit.Connect(t, s)
	for _, e := range append([]exchange{
		{admin.SubjectTagsCreate, `{"tag":"order","step":10}`, "", `"tag":"order"`},
		{admin.SubjectTagsCreate, `{"tag":"bill","order":"strict"}`, "", `"step":0`},
	}, exchanges...) {
		reply, code := ask(t, nc, e.subject, e.body)
		if e.subject == admin.SubjectTagsGet { // a refill in the background may change the record
			testkit.Eventually(t, e.reply, func() bool {
				reply, code = ask(t, nc, e.subject, e.body)
				return code == e.code && strings.Contains(reply, e.reply)
			})
		}
		if code != e.code || !strings.Contains(reply, e.reply) {
			t.Errorf("%s %.200s is answered with %s %.500s, want %s %s", e.subject, e.body, code, reply, e.code,
				e.reply)
		}
		if own := []string{"rules_version", "opaque-", "key", "9007199254740991"}; code == "" &&
			slices.ContainsFunc(own, func(s string) bool { return strings.Contains(reply, s) }) {
			t.Errorf("%s %s: the reply shows what is ours alone: %s", e.subject, e.body, reply)
		}
	}
	reply, _ := ask(t, nc, admin.SubjectTagsList, `{}`)
	var page admin.TagsPage
	if err := json.Unmarshal([]byte(reply), &page); err != nil || len(page.Tags) < 2 || len(page.Unserved) > 0 {
		t.Errorf("%s, %v", reply, err)
	}
}

func TestAdministerOpaqueTags(t *testing.T) {
	t.Parallel()
	most := make([]string, admin.MostRevealed)
	for i := range most {
		most[i] = fmt.Sprintf(`"%d"`, i+1)
	}
	reveal := `{"tag":"coupon","ids":[` + strings.Join(most, ",")
	administer(t, []exchange{
		{admin.SubjectTagsCreate, `{"tag":"coupon","opaque":"64"}`, "400", "none of 63, 53 and d9 to d18"},
		{admin.SubjectTagsCreate, `{"tag":"coupon","opaque":53}`, "400", `"bad_request"`},
		{admin.SubjectTagsCreate, `{"tag":"coupon","order":"opaque-53"}`, "400", "want trend or strict"},
		{admin.SubjectTagsCreate, `{"tag":"coupon","opaque":"53","order":"strict"}`, "400", "strict or opaque"},
		{admin.SubjectTagsCreate, `{"tag":"coupon","opaque":"53","limit":"7"}`, "400", "has no limit of its own"},
		{admin.SubjectTagsCreate,
			`{"tag":"coupon","opaque":"53","order":"trend","step":20,"quota":{"per_second":1000000}}`, "",
			`"opaque":"53"`},
		{admin.SubjectTagsCreate, `{"tag":"coupon","opaque":"53"}`, "409", `"exists"`},
		{admin.SubjectTagsCreate, `{"tag":"coupon","opaque":"63"}`, "409", `"conflict"`},
		{admin.SubjectTagsCreate, `{"tag":"coupon"}`, "409", `"conflict"`},
		{admin.SubjectTagsUpdate, `{"tag":"coupon","opaque":"63"}`, "400", `"bad_request"`},
		{admin.SubjectTagsUpdate, `{"tag":"coupon","limit":"0"}`, "400", "has no limit of its own"},
		{admin.SubjectTagsUpdate, `{"tag":"coupon","step":30,"max_id":"100"}`, "", `"opaque":"53"`},
		{admin.SubjectTagsGet, `{"tag":"coupon"}`, "", `"opaque":"53"`},
		{admin.SubjectTagsReveal, `{"tag":"coupon","ids":["1","2"]}`, "", `{"tag":"coupon","numbers":["`},
		{admin.SubjectTagsReveal, reveal + `]}`, "", `"numbers":["`},
		{admin.SubjectTagsReveal, reveal + `,"1"]}`, "400", "want 1 to 10000"},
		{admin.SubjectTagsReveal, `{"tag":"coupon","ids":[]}`, "400", "want 1 to 10000"},
		{admin.SubjectTagsReveal, `{"tag":"coupon","ids":["9007199254740992"]}`, "400", "from 1 to 9007199254740991"},
		{admin.SubjectTagsReveal, `{"tag":"coupon","ids":["0"]}`, "400", `"bad_request"`},
		{admin.SubjectTagsReveal, `{"tag":"order","ids":["1"]}`, "400", "not opaque"},
		{admin.SubjectTagsReveal, `{"tag":"none","ids":["1"]}`, "404", `"unknown_tag"`},
		{admin.SubjectTagsAdvance, `{"tag":"coupon"}`, "", `"max_id":"100"`},
		{admin.SubjectTagsDelete, `{"tag":"coupon"}`, "", `"opaque":"53"`},
		{admin.SubjectTagsReveal, `{"tag":"coupon","ids":["1"]}`, "", `"numbers":["`},
		{admin.SubjectTagsCreate, `{"tag":"coupon","opaque":"d12"}`, "409", `"conflict"`},
		{admin.SubjectTagsCreate, `{"tag":"coupon","opaque":"53"}`, "", `"max_id":"100"`},
	}...)
}

// The codes and bodies of requests that the rules refuse, and of changes that do not fit.
func TestAdministerRules(t *testing.T) {
	t.Parallel()
	const rules = `"outlast":"1h","limit":"9007199254740993"`
	administer(t, []exchange{
		{admin.SubjectTagsUpdate, `{"tag":"order","paused":true}`, "", `"paused":true`},
		{"leaf.segment.order", ``, "403", `"code":403,"reason":"paused"`},
		{"leaf.segment.order", `{"count":5}`, "403", `"reason":"paused"`},
		{admin.SubjectTagsUpdate, `{"tag":"order","paused":false,"quota":{"per_second":1,"burst":2}}`, "",
			`"quota":{"per_second":1,"burst":2}`},
		{"leaf.segment.order", `2`, "", "1-2"},
		{admin.SubjectTagsGet, `{"tag":"order"}`, "", `"max_id":"21"`}, // the next segment is in memory, too
		{"leaf.segment.order", `1`, "429", `"code":429,"reason":"quota_exceeded"`},
		{"leaf.segment.order", `1`, "429", `"retry_after_ms":`},
		{"leaf.segment.order", `3`, "413", `"reason":"batch_too_large"`},
		{admin.SubjectTagsUpdate, `{"tag":"order","quota":{"per_second":0},"limit":"4"}`, "409",
			"9223372036854775786 IDs that are left"},
		{admin.SubjectTagsUpdate, `{"tag":"order","quota":{"per_second":0},"limit":"4","force":true}`, "", `"limit":"4"`},
		{"leaf.segment.order", `2`, "", "3-4"},
		{"leaf.segment.order", `1`, "507", `"code":507,"reason":"exhausted"`},
		{admin.SubjectTagsUpdate, `{"tag":"order","outlast":"1h","limit":9007199254740993}`, "", rules},
		{"leaf.segment.order", `1`, "", "21"}, // what was in memory was above the limit

		{admin.SubjectTagsUpdate, `{"tag":"order","quota":{"per_second":-1}}`, "400", "quota"},
		{admin.SubjectTagsUpdate, `{"tag":"order","quota":{"per_second":1.5}}`, "400", `"bad_request"`},
		{admin.SubjectTagsUpdate, `{"tag":"order","quota":{"per_minute":1}}`, "400", `"bad_request"`},
		{admin.SubjectTagsUpdate, `{"tag":"order","quota":"1000/s"}`, "400", `"bad_request"`},
		{admin.SubjectTagsUpdate, `{"tag":"order","paused":"yes"}`, "400", `"bad_request"`},
		{admin.SubjectTagsUpdate, `{"tag":"order","outlast":"15"}`, "400", "15m"},
		{admin.SubjectTagsUpdate, `{"tag":"order","outlast":900}`, "400", `"bad_request"`},
		{admin.SubjectTagsUpdate, `{"tag":"order","outlast":"1ms"}`, "400", "outlast"},
		{admin.SubjectTagsUpdate, `{"tag":"order","max_step":5}`, "400", `"bad_request"`},
		{admin.SubjectTagsUpdate, `{"tag":"order","limit":"x"}`, "400", "limit"},
		{admin.SubjectTagsUpdate, `{"tag":"order","limit":"-1"}`, "400", "limit"},
		{admin.SubjectTagsUpdate, `{"tag":"order","limit":"9223372036854775807"}`, "400", "limit"},
		{admin.SubjectTagsUpdate, `{"tag":"order","rules_version":"5"}`, "400", `"bad_request"`},
		{admin.SubjectTagsUpdate, `{"tag":"bill","outlast":"1h"}`, "400", "strict"},
		{admin.SubjectTagsUpdate, `{"tag":"nobody","paused":true}`, "404", `"unknown_tag"`},
		{admin.SubjectTagsUpdate, `{"tag":"order"}`, "400", "limit"},
		{admin.SubjectTagsGet, `{"tag":"order"}`, "", rules},
		{admin.SubjectTagsList, `{}`, "", rules},

		{admin.SubjectTagsCreate, `{"tag":"new","order":"strict","outlast":"1h"}`, "400", "strict"},
		{admin.SubjectTagsCreate,
			`{"tag":"new","step":10,"quota":{"per_second":5},"paused":true,"outlast":"1h30m","limit":"7"}`, "",
			`"quota":{"per_second":5,"burst":5},"paused":true,"outlast":"1h30m","limit":"7"`},
		{"leaf.segment.new", ``, "403", `"paused"`},
		{admin.SubjectTagsDelete, `{"tag":"new"}`, "", `"new"`},
		{admin.SubjectTagsCreate, `{"tag":"new"}`, "", `"step":1000,"description":"","updated"`},
		{"leaf.segment.new", `10`, "", "1-10"}, // the rules are those of the new tag
	}...)
}
