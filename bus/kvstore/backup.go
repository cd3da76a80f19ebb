package kvstore

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/internal/wire"
)

// Backup is a copy of all records of an installation. It is complete: the snapshots of nats-server
// can lack a record that is rewritten meanwhile.
type Backup struct {
	Installation string    `json:"installation"`
	Created      time.Time `json:"created"`
	Buckets      []string  `json:"buckets"` // those that existed, also without a record
	Records      []Record  `json:"records"`
}

const backupFormat = "leafbus backup 3"

// TakeBackup reads all records of the installation, each one from the leader of its bucket.
// Generators may write meanwhile. While the tags are lost, the error matches
// [allocator.ErrTagsLost].
func TakeBackup(ctx context.Context, cfg Config, progress Progress) (b Backup, err error) {
	have, ok, err := ReadInstallation(ctx, cfg)
	switch {
	case err != nil:
		return b, err
	case !ok:
		return b, fmt.Errorf("this NATS account has no installation (bucket %s has no record), "+
			"so there is nothing to back up: name the right --server and account, or see docs/operate.md if "+
			"JetStream lost the record",
			wire.BucketInstallation)
	}
	if err := lossOf(ctx, cfg, have); err != nil {
		return b, err
	}
	b.Installation, b.Created = have.ID, time.Now().UTC().Truncate(time.Second)
	for _, name := range buckets {
		from, err := find(ctx, cfg, name)
		var records []Record
		if from.leader != nil { // one that was edited, and so is refused, can be backed up: that is a part of its repair
			records, err = from.readAll(ctx, progress)
		}
		switch {
		case errors.Is(err, jetstream.ErrStreamNotFound): // if it was removed since, lossOf says so
			continue
		case err != nil:
			return b, fmt.Errorf("bucket %s: %w", name, err)
		}
		b.Buckets, b.Records = append(b.Buckets, name), append(b.Records, records...)
	}
	if err := lossOf(ctx, cfg, have); err != nil { // since then
		return b, err
	}
	return b, b.check()
}

// lossOf is the error of a backup of tags that are lost.
func lossOf(ctx context.Context, cfg Config, have Installation) error {
	tags, err := FirstOfTags(ctx, cfg, have.ID)
	switch {
	case errors.Is(err, allocator.ErrRefused), err == nil && (have.Tags == 0 || tags == have.Tags):
		return nil
	case err != nil:
		return err
	}
	return fmt.Errorf("%w: a backup would lack them, and its restore would end the loss: "+
		"restore an earlier backup, or end the loss with `leaf tag advance --all`, first", allocator.ErrTagsLost)
}

// backupFile is the JSON in a file. The file is compressed by gzip, whose checksum shows what is
// missing or changed.
type backupFile struct {
	Format string `json:"format"`
	Backup
}

// Write writes the backup into a file.
func (b Backup) Write(w io.Writer) error {
	zipped := gzip.NewWriter(w)
	return errors.Join(json.NewEncoder(zipped).Encode(backupFile{backupFormat, b}), zipped.Close())
}

var (
	errNoBackup  = errors.New("this is no file of `leaf backup`, or one of another version")
	errCutBackup = errors.New("the file is cut off or damaged: use another backup")
)

// ParseBackup reads what [Backup.Write] wrote. It refuses a file of which anything is missing or
// changed.
func ParseBackup(data []byte) (Backup, error) {
	if !bytes.HasPrefix(data, []byte("\x1f\x8b")) { // as gzip begins
		return Backup{}, errNoBackup
	}
	unzipped, err := gzip.NewReader(bytes.NewReader(data))
	var text []byte
	if err == nil {
		text, err = io.ReadAll(unzipped)
	}
	if err != nil {
		return Backup{}, fmt.Errorf("%w: %w", errCutBackup, err)
	}
	var file backupFile
	if err := decodeWhole(text, &file); err != nil || file.Format != backupFormat {
		return Backup{}, errNoBackup
	}
	return file.Backup, file.check()
}

// check refuses a backup that no program of this version makes.
func (b Backup) check() error {
	type name struct{ bucket, key string }
	seen := make(map[name]bool)
	owner := ""
	for _, r := range b.Records {
		n := name{r.Bucket, r.Key}
		if seen[n] || !slices.Contains(buckets, r.Bucket) || !slices.Contains(b.Buckets, r.Bucket) {
			return fmt.Errorf("%w: bucket %.40q, key %.200q", errNoBackup, r.Bucket, r.Key)
		}
		seen[n] = true
		if n == (name{wire.BucketInstallation, InstallationKey}) {
			var have Installation
			if err := json.Unmarshal(r.Value, &have); err != nil {
				return fmt.Errorf("%w: the installation's record: %w", errNoBackup, err)
			}
			owner = have.ID
		}
	}
	if owner == "" || owner != b.Installation {
		return fmt.Errorf("%w: it has no record of its installation", errNoBackup)
	}
	return nil
}
