//go:build mutations

package allocatortest

import (
	"testing"

	"github.com/leafbus/leafbus/internal/mutate"
)

// TestMutations demands that the conformance suites find each of these breaches of their contracts, made in the
// implementations in memory: `make mutations`.
func TestMutations(t *testing.T) {
	const (
		numbers = "memorynumbers.go"
		records = "memoryrecords.go"
		compare = "now != revision {"
		write   = "	return m.putLocked(allocator.Update{Stored: allocator.Stored{Tag: t}}), nil\n"
		begin   = "	epoch, seen := -1, 0\n"
		call    = "			f(u)\n"
		pause   = "	m.mu.Unlock()\n	sleep(context.Background(), poll)\n	m.mu.Lock()\n"
	)
	for _, m := range []struct {
		name  string
		by    string // the case that finds it
		edits []mutate.Edit
	}{
		{"Advance reads, and then writes", "ManyHandles", []mutate.Edit{{numbers,
			"	from = max(from, 1)\n", pause + "	from = max(from, 1)\n"}}},
		{"Advance begins below from", "From", []mutate.Edit{{numbers, "from = max(from, 1)", "from = 1"}}},
		{"Advance says that it moved max_id, and did not", "From", []mutate.Edit{{numbers,
			"		r.MaxID = from\n		m.rows[tag] = r\n", ""}}},
		{"Advance moves max_id to from, also down", "FromMany", []mutate.Edit{{numbers,
			"was < from {", "was != from && from > 1 {"}}},
		{"Advance goes on without saying that the row was behind", "From", []mutate.Edit{{numbers,
			"		return allocator.Range{}, r.Step, &allocator.AdvancedError{Tag: tag, Got: was, Seen: from}\n", ""}}},
		{"Advance takes a row that another name has", "NamesByCase", []mutate.Edit{
			{numbers, "r, ok := m.rows[tag]", "r, ok := m.rows[strings.ToLower(tag)]"},
			{numbers, "	\"slices\"\n", "	\"slices\"\n	\"strings\"\n"}}},
		{"Advance takes less than n at the end", "Exhausted", []mutate.Edit{{numbers, "left < n {", "left < 1 {"}}},
		{"Advance needs a whole step", "Exhausted", []mutate.Edit{{numbers, "left < n {", "left < max(n, r.Step) {"}}},
		{"Advance makes a row", "UnknownTag", []mutate.Edit{{numbers, "	if !ok || r.MaxID == 0 {\n",
			"	if !ok {\n		return allocator.Row{Name: tag, MaxID: 1, Step: 1}, nil\n	}\n	if r.MaxID == 0 {\n"}}},
		{"Add replaces a row", "AddTwice", []mutate.Edit{{numbers, "if old.MaxID != 0 {", "if old.MaxID < 0 {"}}},
		{"Raise can lower", "Raise", []mutate.Edit{{numbers, "r.MaxID = max(r.MaxID, end)", "r.MaxID = max(1, end)"}}},
		{"Raise of a row that is as it should be says that there is none", "Raise", []mutate.Edit{{numbers,
			"	r.MaxID = max(r.MaxID, end)\n",
			"	r.MaxID = max(r.MaxID, end)\n	if m.rows[tag] == r {\n		return allocator.ErrUnknownTag\n	}\n"}}},
		{"Mark can lower", "Mark", []mutate.Edit{{numbers, "max(r.Mark, mark), kind", "mark, kind"}}},
		{"Mark reads, and then writes", "Mark", []mutate.Edit{{numbers,
			"	r.Name, r.Mark, r.Kind = tag", pause + "	r.Name, r.Mark, r.Kind = tag"}}},
		{"Mark forgets the kind", "Mark", []mutate.Edit{{numbers, "max(r.Mark, mark), kind", "max(r.Mark, mark), \"\""}}},
		{"Remove leaves no mark", "Remove", []mutate.Edit{{numbers,
			"	m.markLocked(tag, mark, kind)\n	m.deleteLocked(tag)\n", "	m.deleteLocked(tag)\n"}}},
		{"Rows leaves out marks without a row", "Rows", []mutate.Edit{{numbers,
			"		f(rows[tag])\n", "		if rows[tag].MaxID != 0 {\n			f(rows[tag])\n		}\n"}}},
		{"Rows leaves out rows that cannot be served", "BadRows", []mutate.Edit{{numbers,
			"		f(rows[tag])\n", "		if rows[tag].Problem == nil {\n			f(rows[tag])\n		}\n"}}},

		{"a Swap ignores the revision", "ManyClaims", []mutate.Edit{{records, compare, "now != revision && false {"}}},
		{"a Swap of a tag without a record writes whatever there is", "OtherRevision", []mutate.Edit{{records,
			compare, "now != revision && revision != 0 {"}}},
		{"a Swap accepts a higher revision", "OtherRevision", []mutate.Edit{{records, compare, "now > revision {"}}},
		{"a Swap compares with the revision of any tag", "OtherRevision", []mutate.Edit{{records, compare,
			"now != revision && !slices.ContainsFunc(m.log, func(w written) bool { return w.revision == revision }) {"}}},
		{"a Swap that lost lands late", "ManyClaims", []mutate.Edit{{records, write,
			"	put := m.putLocked(allocator.Update{Stored: allocator.Stored{Tag: t}})\n" +
				"	if put%10 == 0 {\n		return 0, allocator.ErrConflict\n	}\n	return put, nil\n"}}},
		{"a Swap that ended with its context lands late", "LateSwaps", []mutate.Edit{{records, "		return 0, err\n	}\n",
			"		return 0, err\n	}\n	if end, _ := ctx.Deadline(); time.Until(end) < timeout/2 {\n" +
				"		time.AfterFunc(2*poll, func() {\n			m.mu.Lock()\n			defer m.mu.Unlock()\n" +
				"			m.putLocked(allocator.Update{Stored: allocator.Stored{Tag: t}})\n		})\n		<-ctx.Done()\n" +
				"		return 0, fmt.Errorf(\"%w: %w\", allocator.ErrUncertain, ctx.Err())\n	}\n"},
			{records, "	\"sync\"\n", "	\"sync\"\n	\"time\"\n"}}},
		{"a Swap is counted as done and is not", "FirstWrite", []mutate.Edit{{records, write,
			"	if len(m.log)%5 == 4 {\n		return revision + 1, nil\n	}\n" + write}}},
		{"two writes have one revision", "ManyClaims", []mutate.Edit{{records, "	b.last++\n", "	b.last = min(b.last+1, 3)\n"}}},
		{"a stale Load has the new revision", "ManyClaims", []mutate.Edit{{records, "	return u.Stored, u.Problem\n",
			"	now := u.Tag\n	if old, ok := stale[tag]; ok {\n		u.Tag = old\n	}\n	stale[tag] = now\n" +
				"	return u.Stored, u.Problem\n}\n\nvar stale = make(map[string]allocator.Tag)\n\nfunc init() {\n"}}},
		{"a field is lost", "Fields", []mutate.Edit{{records, write, "	t.Floor = 0\n" + write}}},
		{"a damaged record is none", "Spoiled", []mutate.Edit{{records, "	return u.Stored, u.Problem\n",
			"	if u.Problem != nil {\n		return allocator.Stored{}, nil\n	}\n	return u.Stored, nil\n"}}},
		{"a watch drops a change", "Watch", []mutate.Edit{{records,
			"u.Revision == w.revision {", "u.Revision == w.revision && u.Revision%4 != 0 {"}}},
		{"a watch leaves tombstones out", "Watch", []mutate.Edit{{records, call,
			"			if !u.Deleted {\n	" + call + "			}\n"}}},
		{"a watch brings old records again", "Watch", []mutate.Edit{
			{records, begin, begin + "	before := make(map[string]allocator.Update)\n"},
			{records, call, call + "			if old := before[u.Name]; old.Revision > 0 && !old.First {\n" +
				"				f(old)\n				f(u)\n			}\n			before[u.Name] = u\n"}}},
		{"a watch does not bring a damaged record", "Spoiled", []mutate.Edit{{records, call,
			"			if u.Problem == nil {\n	" + call + "			}\n"}}},
		{"a watch goes on from its last revision", "Restored", []mutate.Edit{
			{records, begin, begin + "	last := uint64(0)\n"},
			{records, call, "			if u.Revision > last {\n				last = u.Revision\n	" + call + "			}\n"}}},
		{"a watch ends without an error", "Watch", []mutate.Edit{{records,
			"		return fmt.Errorf(\"watching: %w\", ctx.Err())\n", "		return nil\n"}}},
		{"a Sync returns early", "Sync", []mutate.Edit{{records, "	case <-done:\n", "	default:\n"}}},
		{"a Sync does not begin again", "Sync", []mutate.Edit{{records, "	m.syncs = append(m.syncs, done)\n", "	close(done)\n"}}},
		{"a Sync without a watch returns", "SyncWaits", []mutate.Edit{{records, "	m.syncs = append(m.syncs, done)\n",
			"	if len(m.log) <= 5 {\n		m.mu.Unlock()\n		return nil\n	}\n	m.syncs = append(m.syncs, done)\n"}}},
		{"a call outlasts its context", "ContextDone", []mutate.Edit{{records, "		return allocator.Stored{}, err\n",
			"		sleep(context.Background(), 2*soon)\n		return allocator.Stored{}, err\n"}}},
	} {
		t.Run(m.name, func(t *testing.T) {
			test := "TestNumbers/"
			if m.edits[0][0] == records {
				test = "TestRecords/"
			}
			mutate.Runner{}.Run(t, test+m.by, m.edits...)
		})
	}
}
