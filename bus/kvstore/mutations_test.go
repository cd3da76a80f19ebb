//go:build mutations

package kvstore

import (
	"testing"

	"github.com/leafbus/leafbus/internal/mutate"
)

type edit = mutate.Edit

// says matches the message of a test, also of a conformance suite, and a panic.
const says = `(?m)^\s+(?:\w+_test|\w*cases|changes|floors)\.go:\d+: (.*)|^(panic: .*)`

// TestMutations demands that a test finds each of these changes, which break a promise. It checks the tests, not the
// code:
// `make mutations`.
func TestMutations(t *testing.T) {
	for _, m := range []struct {
		name  string
		by    string // the test that finds it
		edits []edit
	}{
		// The compare-and-set of a tag's record.
		{"a claim replaces whatever record is there", "TestTagsFromAReplicaThatLags", []edit{{"store.go",
			"revision, err = kv.Update(ctx, tag, record, old.revision)", "revision, err = kv.Put(ctx, tag, record)"}}},
		{"a conflict counts as success", "TestTagsFromAReplicaThatLags", []edit{{"store.go",
			"		return 0, allocator.Tag{}, errRace\n", "		return old.revision, t, nil\n"}}},
		{"an unanswered write counts as done", "TestLateWrite", []edit{{"store.go",
			"	case err != nil:\n		return 0, allocator.Tag{}, fmt.Errorf(\"writing",
			"	case err != nil && ctx.Err() == nil:\n		return 0, allocator.Tag{}, fmt.Errorf(\"writing"}}},
		{"an unanswered claim counts as not done", "TestLateWrite", []edit{{"store.go",
			"	case errors.Is(err, jetstream.ErrKeyRevisionMismatch), errors.Is(err, jetstream.ErrKeyExists):\n		return 0, allocator.Tag{}, errRace",
			"	case err != nil:\n		return 0, allocator.Tag{}, errRace"}}},
		{"any write that JetStream could not store counts as not done", "TestFull", []edit{{"room.go",
			"		return strings.Contains(err.Error(), \"maximum bytes exceeded\") ||", "		return true ||"}}},
		{"a full bucket counts as an unanswered write", "TestFull", []edit{{"room.go",
			"	case codeServerFull, codeAccountFull, codeMsgTooBig:", "	case codeAccountFull, codeMsgTooBig:"}}},
		{"a claim begins below what the generator knows", "TestConformance", []edit{{"store.go",
			"if t.MaxID < from {", "if false {"}}},
		{"after a conflict a strict tag is claimed by the old record", "TestStrictConflict", []edit{{"store.go",
			"		s.latest.Forget(tag)\n", ""}}},
		{"a conflict of a strict tag names nobody", "TestStrictConflict", []edit{{"store.go",
			"Node: old.Last.Node}", "Node: s.cfg.Node}"}}},

		// Old answers.
		{"a replica that lags behind hides a tag", "TestTagsFromAReplicaThatLags", []edit{{"store.go",
			"if err != nil || r.exists && !r.Deleted &&", "if err != nil || !r.exists || !r.Deleted &&"}}},
		{"after a conflict a replica is asked again", "TestTagsFromAReplicaThatLags", []edit{{"store.go",
			"		s.raced.Store(at.UnixNano())\n", "		s.raced.Store(0)\n"}}},
		{"any replica says how far a tag was claimed", "TestClaimedAsksTheLeader", []edit{{"bucket.go",
			"	stream.CachedInfo().Config.AllowDirect = false // for this handle, not in the stream\n", ""}}},
		{"any replica says what is reserved of a worker", "TestWorkersFromAReplicaThatLags", []edit{{"watch.go",
			"for err == nil && read < last.Sequence {", "for false && read < last.Sequence {"}}},
		{"a watch that misses changes goes on", "TestWatchBreaksWhenItIsBlind", []edit{{"watch.go",
			"blind := last < p.seen || p.before > p.seen && !p.came", "blind := false"}}},
		{"a list lacks the tags that the watch has not brought yet", "TestListHasWhatWasCreatedBefore",
			[]edit{{"list.go",
				"s.names.atLeast(ctx, int(info.State.NumSubjects))",
				"s.names.atLeast(ctx, int(min(info.State.NumSubjects, 0)))"}}},

		// Deletions and losses.
		{"a tombstone is claimed", "TestConformance", []edit{{"store.go",
			"	case t.Deleted:\n		return allocator.ErrDeleted\n", ""}}},
		{"a tag that is created again begins at 1", "TestConformance", []edit{{"store.go",
			"t.MaxID, t.Last, t.Deleted = max(tag.MaxID, old.MaxID), old.Last, false",
			"t.MaxID, t.Last, t.Deleted = tag.MaxID, old.Last, false"}}},
		{"a tag whose key was deleted by hand is created at 1", "TestKeyDeletedByHand", []edit{{"store.go",
			"if old.exists || t.MaxID == 1 {", "if old.exists {"}}},
		{"a tag is created at 1 after all tags were lost", "TestTagsLost", []edit{{"store.go",
			"errors.Is(err, errTagsLost) && tag.MaxID > 1; !known", "errors.Is(err, errTagsLost); !known"}}},
		{"a tag is created without the installation's record", "TestRecordLost", []edit{{"loss.go",
			"	if errors.Is(err, jetstream.ErrBucketNotFound) || errors.Is(err, jetstream.ErrKeyNotFound) {\n",
			"	if errors.Is(err, jetstream.ErrBucketNotFound) || errors.Is(err, jetstream.ErrKeyNotFound) {\n		return nil\n"}}},
		{"a bucket with an age limit is used", "TestBucketRefused", []edit{{"bucket.go",
			"case c.MaxAge > 0:", "case false:"}}},

		// Strict decoding.
		{"unknown fields of a record are dropped", "TestDamaged",
			[]edit{{"bucket.go", "	decoder.DisallowUnknownFields()\n", ""}}},
		{"a tag's record at another key is used", "TestDamaged",
			[]edit{{"store.go", "if t.Name != key || t.MaxID < 1", "if t.MaxID < 1"}}},
		{"a worker's record without an incarnation is used", "TestDamaged",
			[]edit{{"workers.go", " || r.Incarnation == \"\"", ""}}},
		{"a damaged record is replaced", "TestDamagedRefuses", []edit{{"store.go",
			"	r.Tag, err = decodeTag(tag, msg.Data)\n", "	r.Tag, _ = decodeTag(tag, msg.Data)\n"}}},

		// The worker's record.
		{"a worker's record is replaced, whatever its revision", "TestWorkersConformance", []edit{
			{"workers.go", "kv.Update(ctx, workerKey(r.Worker), record, version)",
				"kv.Put(ctx, workerKey(r.Worker), record)"}}},
		{"a lost race for a worker counts as won", "TestWorkersConformance", []edit{{"workers.go",
			"	case mismatch(err):\n		return 0, fmt.Errorf(\"%w: worker %d\", snowflake.ErrConflict, r.Worker)\n",
			"	case mismatch(err):\n"}}},
		{"an unanswered write of a worker counts as done", "TestLateWrite", []edit{{"workers.go",
			"	case err != nil:\n		return 0, fmt.Errorf(\"writing the record of worker",
			"	case err != nil && ctx.Err() == nil:\n		return 0, fmt.Errorf(\"writing the record of worker"}}},
		{"equal revisions of two buckets count as one record", "TestRevisionAgain", []edit{{"workers.go",
			"return e.Version == version && (known.Version != version || e == known), nil",
			"return e.Version == version && (known.Version != version || true), nil"}}},
		{"a worker whose record is damaged is given to another generator", "TestDamagedRefuses", []edit{{"workers.go",
			"kv.Create(ctx, workerKey(r.Worker), record)", "kv.Put(ctx, workerKey(r.Worker), record)"}}},

		// The installation's record.
		{"a second installation replaces the first", "TestInstallation", []edit{{"installation.go",
			"_, err = kv.Create(ctx, InstallationKey, record)", "_, err = kv.Put(ctx, InstallationKey, record)"}}},
		{"changes of the installation's record undo each other", "TestChangeInstallation", []edit{{"installation.go",
			"_, err = kv.Update(ctx, InstallationKey, record, entry.Revision())",
			"_, err = kv.Put(ctx, InstallationKey, record)"}}},

		// A backup, and what a restore makes of it.
		{"a file that was changed is restored", "TestCutBackup", []edit{{"backup.go",
			"end.SHA256 != hex.EncodeToString(sum[:]) ||", "len(sum) == 0 ||"}}},
		{"a restore lowers a tag", "TestRestoreLowersNothing", []edit{{"restore.go",
			"	return encodeIf(has, is, raisedTo(t, known))\n", "	return r.Value, nil\n"}}},
		{"a restore does not heed what somebody knows", "TestRestoreLowersNothing", []edit{{"restore.go",
			"	return encodeIf(has, is, raisedTo(t, known))\n", "	return encodeIf(has, is, t)\n"}}},
		{"a restore replaces the key of an opaque tag", "TestRestoreRefused", []edit{{"restore.go",
			"if has != nil && !bytes.Equal(has, r.Value) {", "if false {"}}},
		{"a restore replaces another installation", "TestRestoreRefused", []edit{{"restore.go",
			"if is.ID != was.ID {", "if false {"}}},
		{"a restore gives a worker to an older holder", "TestMerge", []edit{{"restore.go",
			"	if was.ReservedUntil <= is.ReservedUntil {\n		return has, nil\n	}\n	is.ReservedUntil = was.ReservedUntil\n	return json.Marshal(is)",
			"	return json.Marshal(was)"}}},
	} {
		t.Run(m.name, func(t *testing.T) { mutate.Runner{By: m.by, Says: says}.Run(t, "", m.edits...) })
	}
}
