//go:build mutations

package kvstore

import (
	"testing"

	"github.com/leafbus/leafbus/internal/mutate"
)

type edit = mutate.Edit

// says matches the message of a test, also of a conformance suite, and a panic.
const says = `(?m)^\s+(?:\w+_test|\w*cases|recordswatch|recordssuite)\.go:\d+: (.*)|^(panic: .*)`

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
		{"a claim replaces whatever record is there", "TestRecords$", []edit{{"records.go",
			"made, err := r.write(ctx, b, t.Name, data, jetstream.WithExpectLastSequencePerSubject(revision))",
			"made, err := r.write(ctx, b, t.Name, data)"}}},
		{"a conflict counts as success", "TestRecords$", []edit{{"bucket.go",
			"	case mismatch(err):\n		return 0, fmt.Errorf(\"%w: another generator changed it first\", allocator.ErrConflict)",
			"	case mismatch(err):\n		return 1, nil"}}},
		{"an unanswered write counts as not done", "TestRecordsUncertain", []edit{{"bucket.go",
			"	return 0, fmt.Errorf(\"%w: %w\", allocator.ErrUncertain, err)\n", "	return 0, allocator.ErrUnavailable\n"}}},
		{"a write is sent again", "TestRecordsUncertain", []edit{{"bucket.go",
			"append(options, jetstream.WithRetryAttempts(0))...", "options..."}}},
		{"records are loaded while none can be written", "TestRecordsUncertain", []edit{{"records.go",
			"	if r.Unwritable() != nil {\n		if err", "	if false {\n		if err"}}},
		{"a bucket with room for an empty write has room for records", "TestRecordsFull", []edit{{"records.go",
			"make([]byte, f.bytes+recordHead)", "nil"}, {"records.go", " && len(value) >= was.bytes:", ":"}}},
		{"any write that JetStream could not store counts as not done", "TestFull", []edit{{"room.go",
			"		return strings.Contains(err.Error(), \"maximum bytes exceeded\") ||", "		return true ||"}}},
		{"a full bucket counts as an unanswered write", "TestFull", []edit{{"room.go",
			"	case codeServerFull, codeAccountFull, codeMsgTooBig:", "	case codeAccountFull, codeMsgTooBig:"}}},
		{"any replica says what is stored", "TestReadsAskTheLeader", []edit{{"bucket.go",
			"		// Without AllowDirect only the leader answers a read.\n", "		AllowDirect: true,\n"},
			{"bucket.go", "	info.Config.AllowDirect = false ", "	"}, {"fit.go", "	case c.AllowDirect || c.MirrorDirect:", "	case false:"}}},
		{"a master key is written over", "TestRemovalsAreDenied", []edit{{"bucket.go",
			"name == wire.BucketKeys,", "false,"}}},

		// Losses.
		{"an old server may lead the tags", "TestOldLeader", []edit{{"fit.go",
			"info.Config.Metadata[leaderVersion] != \"\"", "true"}}},
		{"an old leader of the installation's record hides that of the tags", "TestOldLeader", []edit{{"losses.go",
			"case errors.Is(err, errOldLeader):", "case false:"}}},
		{"a record of an earlier bucket counts", "TestRecordsLost", []edit{{"tagrecord.go",
			"	case of == b.first:", "	case of <= b.first:"}}},
		{"a record of an earlier bucket is in the way of its tag", "TestRecordsLost", []edit{{"records.go",
			"if revision == 0 && errors.Is(err, allocator.ErrConflict) {", "if false {"}}},
		{"a tag is created when the tags were just lost", "TestRecordsLost", []edit{{"records.go",
			"!(known && errors.Is(lost, allocator.ErrTagsLost))",
			"!(known || errors.Is(lost, allocator.ErrTagsLost))"}}},
		{"a tag is created without the installation's record", "TestRecordsOfNoInstallation", []edit{{"losses.go",
			"	case !ok:\n", "	case !ok:\n		return nil, nil\n"}}},
		{"a bucket is made without an installation", "TestRecordsOfNoInstallation", []edit{{"session.go",
			"!errors.Is(lost, allocator.ErrTagsLost) { // then", "lost == unknown { // then"}}},
		{"a bucket without its marker is taken for the one that had the tags", "TestRecordsEmptied",
			[]edit{{"losses.go", "if err == nil && !whole {", "if err == nil && !whole && false {"}}},
		{"tags that are lost are there when the installation's record says so, too", "TestInstallationMadeAgainWithoutTags",
			[]edit{{"losses.go", "if first == b.first && first == have.Tags {", "if first == have.Tags {"}}},
		{"a new bucket counts its revisions from 1", "TestRecordsLost", []edit{{"bucket.go",
			"max(uint64(time.Now().UnixMicro()), have.Tags+mostWrites)", "uint64(time.Now().Year()) + 0*have.Tags"}}},
		{"the clock alone says where a bucket begins that is made again", "TestRecordsLostClockBehind", []edit{{"bucket.go",
			"have.Tags+mostWrites", "have.Tags*0"}}},
		{"a record of no bucket stops the watch", "TestRecordOfNoBucket", []edit{{"tagrecord.go",
			"err != nil || now.first != b.first {", "true || now.first != b.first {"}}},
		{"a record of no bucket cannot be written over", "TestRecordOfNoBucket", []edit{{"tagrecord.go",
			"	return unread, fmt.Errorf(\"%w: key", "	unread.Revision = 0\n	return unread, fmt.Errorf(\"%w: key"}}},
		{"a bucket of another version is used", "TestBucketRefused", []edit{{"fit.go",
			"	case tags && c.Description != descriptions[bucket]:", "	case false:"}}},
		{"a bucket that answers from any replica is used", "TestBucketRefused", []edit{{"fit.go",
			"	case c.AllowDirect || c.MirrorDirect:", "	case false:"}}},
		{"an unfit bucket hides another one", "TestBucketsChange", []edit{{"losses.go",
			"; errors.Is(tags, allocator.ErrRefused) {", "; false && tags != nil {"}}},
		{"a bucket with an age limit is used", "TestBucketRefused", []edit{{"fit.go",
			"case c.MaxAge > 0:", "case false:"}}},
		{"the bucket of another installation is used", "TestRecordsOfAnother", []edit{{"losses.go",
			"if m.Installation != installation {", "if false {"}}},

		{"a pushed revision of an earlier bucket is swapped", "TestPushAfterARestore", []edit{{"records.go",
			"if revision != 0 && revision < b.first || revision", "if revision"}}},
		{"a creation in a bucket that was made again is a success", "TestCreationMeanwhile", []edit{{"records.go",
			"if err == nil && revision == 0 {", "if false {"}}},
		{"the tags of another installation are claimed from", "TestTagsOfAnother", []edit{{"losses.go",
			"if m.Installation != installation {", "if false {"}}},
		{"a restore goes on beside the tags of another installation", "TestTagsOfAnother", []edit{{"restore.go",
			"if _, err := FirstOfTags(ctx, cfg, b.Installation); err != nil {", "if err := ctx.Err(); err != nil {"}}},
		{"a restore ends the loss of whatever bucket there is", "TestRestoreIntoALostBucket", []edit{{"losses.go",
			"first != 0 && b.first != first", "false"}}},
		{"a restore puts records of a newer version back", "TestRestoreOfANewerVersion", []edit{{"restore.go",
			"errors.Is(err, allocator.ErrNewer) {", "false {"}}},
		{"a backup lacks the tags that are lost", "TestNoBackupOfALoss", []edit{{"backup.go",
			"tags == have.Tags", "tags != 0"}}},
		{"a bucket that removes what was read is used", "TestBucketRefused", []edit{{"fit.go",
			"case c.Retention != jetstream.LimitsPolicy:", "case false:"}}},

		// The watch.
		{"a session goes on after a gap", "TestSessionGap", []edit{{"session.go",
			"meta.Sequence.Consumer != s.got {", "meta.Sequence.Consumer < s.got {"}}},
		{"a session goes on with a consumer that began again", "TestSessionGap", []edit{{"session.go",
			"meta.Sequence.Consumer != s.got {", "meta.Sequence.Consumer > s.got {"}}},
		{"a heartbeat shows no gap", "TestSessionGap", []edit{{"session.go",
			"last != \"\" && last != strconv", "last == \"\" && last != strconv"}}},
		{"flow control gets no answer", "TestRecordsMany", []edit{{"session.go",
			"		return s.cfg.JS.Conn().Publish(reply, nil)\n", "		return nil\n"}}},
		{"a session goes on after a reconnect", "TestRecordsCut", []edit{{"session.go",
			"			r.wake() // also where this session ends for another reason\n			end(errAgain)\n", ""}}},
		{"a silent consumer is trusted", "TestRecordsLost", []edit{{"session.go",
			"	silence   = 3 * time.Second", "	silence   = time.Hour"}}},
		{"a session that has not passed its own write counts as synced", "TestSessionSynced", []edit{{"session.go",
			"for s.at < wrote || s.pending > 0 {", "for s.at == 0 || s.pending > 0 {"}}},
		{"a session is synced while records follow", "TestSessionSynced", []edit{{"session.go",
			"if s.pending == 0 {", "if s.pending >= 0 {"}, {"session.go", "s.at < wrote || s.pending > 0 {", "s.at < wrote {"}}},
		{"one own write is enough for a session to be synced", "TestSessionSynced", []edit{{"session.go",
			"if passed++; passed == 2 {", "if passed++; passed == 1 {"}}},
		{"a Sync is over before its session", "TestRecords$", []edit{{"session.go",
			"	wanted := r.begun + 1\n", "	wanted := r.begun\n"}}},

		// Strict decoding.
		{"unknown fields of a record are dropped", "FuzzTagRecord",
			[]edit{{"bucket.go", "	decoder.DisallowUnknownFields()\n", ""}}},
		{"a tag's record at another key is used", "FuzzTagRecord",
			[]edit{{"tagrecord.go", "r.Name != key || ", ""}}},
		{"a record with a floor above its end is used", "FuzzTagRecord",
			[]edit{{"tagrecord.go", " && r.Floor <= r.MaxID", ""}}},
		{"a worker's record without an incarnation is used", "FuzzDecodeWorker",
			[]edit{{"workers.go", " || e.Incarnation == \"\"", ""}}},

		// The worker's record.
		{"a worker's record is replaced, whatever its revision", "TestWorkersConformance", []edit{
			{"workers.go", "b.put(ctx, workerKey(r.Worker), value, version)",
				"b.send(ctx, workerKey(r.Worker), value)"}}},
		{"a lost race for a worker counts as won", "TestWorkersConformance", []edit{{"workers.go",
			"	case errors.Is(err, allocator.ErrConflict):\n		return 0, fmt.Errorf(\"%w: worker %d\", snowflake.ErrConflict, r.Worker)\n",
			"	case errors.Is(err, allocator.ErrConflict):\n"}}},
		{"an unanswered write of a worker counts as done", "TestLateWrite", []edit{{"workers.go",
			"	case err != nil:\n		return 0, fmt.Errorf(\"writing the record of worker",
			"	case err != nil && ctx.Err() == nil:\n		return 0, fmt.Errorf(\"writing the record of worker"}}},
		{"equal revisions of two buckets count as one record", "TestRevisionAgain", []edit{{"workers.go",
			"return e.Version == version && (known.Version != version || e == known), nil",
			"return e.Version == version && (known.Version != version || true), nil"}}},
		{"a worker with a damaged record is given to another generator", "TestDamagedRefuses", []edit{{"workers.go",
			"b.put(ctx, workerKey(r.Worker), value, version)", "b.send(ctx, workerKey(r.Worker), value)"}}},

		// The installation's record.
		{"a second installation replaces the first", "TestInstallation", []edit{{"installation.go",
			"if err != nil || have.ID != \"\" {", "if err != nil || have.ID == \"?\" {"}}},
		{"changes of the installation's record undo each other", "TestChangeInstallation", []edit{{"bucket.go",
			"		_, err = b.put(ctx, key, value, is.revision)", "		_, err = b.send(ctx, key, value)"}}},

		// The buckets and the stream in NATS.
		{"one busy tag removes the events of all others", "TestEvents$", []edit{{"events.go", " / eventShare ", " / 1 "}}},
		{"a bucket has fewer replicas while a server is away", "TestReplicasWhileAServerIsAway", []edit{{"replicas.go",
			"if lookErr == nil && record", "if false && lookErr == nil && record"}}},
		{"a cluster keeps the state once", "TestReplicas$", []edit{{"replicas.go",
			"	for range placementTries {", "	for range 0 {"}}},
		{"a lost race in a cluster counts as an unanswered write", "TestReplicas$", []edit{{"room.go",
			" || c == jetstream.JSErrCodeStreamWrongLastSequenceConstant", ""}}},
		{"an old store is taken into a cluster", "TestOldStore", []edit{{"oldstore.go",
			"case err == nil && info.Store > 0 && info.Streams == 0:", "case false:"}}},
		{"streams of other programs hide an old store", "TestOldStore", []edit{{"oldstore.go",
			"waited < oldStoreHidden &&", "false &&"}}},
		{"a leaf node passes on no write", "TestRecordsOverALeafNode", []edit{{"bucket.go",
			"if domain := b.JS.Options().Domain; domain != \"\" {", "if domain := \"\"; domain != \"\" {"}}},
		{"a watch goes on at its position after a restore", "TestRecordsRestored", []edit{{"session.go",
			"return errors.New(\"the bucket was made again\")", "return nil"}, {"session.go",
			"	silence   = 3 * time.Second", "	silence   = time.Hour"}}},
		{"a stream is made smaller for any error", "TestShrink", []edit{{"room.go",
			"if !tooLarge(err) || size", "if err == nil || size"}}},
		{"a JetStream that is away counts as none for good", "TestNoJetStream", []edit{{"bucket.go",
			"		return fmt.Errorf(\"%w: %w\", ErrNoJetStream, err)\n", "		return err\n"}}},
		{"a deleted worker is taken for good", "TestWorkerDeletedByHand", []edit{{"workers.go",
			"deleted[workerKey(r.Worker)])", "0*deleted[workerKey(r.Worker)])"}}},

		// A backup, and what a restore makes of it.
		{"a file that was cut off is restored", "TestCutBackup", []edit{{"backup.go",
			"		text, err = io.ReadAll(unzipped)", "		text, _ = io.ReadAll(unzipped)"}}},
		{"the progress of a backup goes back", "TestRestoreIntoAnEmptyAccount", []edit{{"contents.go",
			"				done(ended)\n", "				done(begun)\n"}}},
		{"a change gives up at a conflict", "TestChangeInstallation", []edit{{"bucket.go",
			"		case !errors.Is(err, allocator.ErrConflict):\n			return fmt", "		default:\n			return fmt"}}},
		{"a backup lacks what was created meanwhile", "TestBackupIsComplete", []edit{{"contents.go",
			"		if len(more) == 0 {\n", "		if records = append(records, more...); true {\n"}}},
		{"a backup has an opaque tag and not its master key", "TestBackupIsComplete", []edit{{"bucket.go",
			"wire.BucketTags, wire.BucketWorkers, wire.BucketKeys}", "wire.BucketKeys, wire.BucketTags, wire.BucketWorkers}"}}},
		{"a restore takes a damaged worker for a free one", "TestMerge", []edit{{"restore.go",
			"		return nil, fmt.Errorf(\"%w: %w\", allocator.ErrDamaged, err)\n", "		return r.Value, nil\n"}}},
		{"a restore lowers a tag", "TestRestoreLowersNothing", []edit{{"restore.go",
			"is.Merge(was, known)", "was.Merge(was, known)"}}},
		{"a restore does not heed what somebody knows", "TestRestoreLowersNothing", []edit{{"restore.go",
			"is.Merge(was, known)", "is.Merge(was, 0)"}}},
		{"a restore does not end the loss of the tags", "TestRestoreIntoAnEmptyAccount", []edit{{"restore.go",
			"		if err := endLoss(ctx, cfg, tags); err != nil {", "		if err := ctx.Err(); err != nil || tags == 0 {"}}},
		{"a restore replaces the key of an opaque tag", "TestRestoreRefused", []edit{{"restore.go",
			"if has != nil && !bytes.Equal(has, r.Value) {", "if false {"}}},
		{"a restore replaces another installation", "TestRestoreRefused", []edit{{"restore.go",
			"if now.ID != was.ID {", "if false {"}}},
		{"a restore gives a worker to an older holder", "TestMerge", []edit{{"restore.go",
			"	if was.ReservedUntil <= is.ReservedUntil {\n		return has, nil\n	}\n	is.ReservedUntil = was.ReservedUntil\n	return json.Marshal(is.Record)",
			"	_ = is\n	return json.Marshal(was.Record)"}}},
	} {
		t.Run(m.name, func(t *testing.T) { mutate.Runner{By: m.by, Says: says}.Run(t, "", m.edits...) })
	}
}
