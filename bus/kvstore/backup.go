package kvstore

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
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

// Backup is a copy of all records of an installation. It is complete: the snapshots of nats-server can lack a record
// that is rewritten meanwhile.
type Backup struct {
	Installation string
	Created      time.Time
	Buckets      []string // those that existed, also without a record
	Records      []Record
}

const backupFormat = "leafbus backup 2"

// TakeBackup reads all records of the installation, each one from the leader of its bucket. Generators may write
// meanwhile. While the tags are lost, the error matches [allocator.ErrTagsLost].
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
		switch {
		case errors.Is(err, jetstream.ErrStreamNotFound):
			continue
		case from.leader == nil: // one that was edited, and so is refused, can be backed up: that is a part of its repair
			return b, err
		}
		records, err := from.readAll(ctx, progress)
		if err != nil {
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

// backupHead is the first line of a file. Then comes a line for each record.
type backupHead struct {
	Format       string    `json:"format"`
	Installation string    `json:"installation"`
	Created      time.Time `json:"created"`
	Buckets      []string  `json:"buckets"`
}

// backupEnd is the last line. A file that was cut off has none.
type backupEnd struct {
	Records int    `json:"records"`
	SHA256  string `json:"sha256"` // of all lines before
}

// Write writes the backup as lines of JSON.
func (b Backup) Write(w io.Writer) error {
	sum := sha256.New()
	buffered := bufio.NewWriter(io.MultiWriter(w, sum))
	lines := json.NewEncoder(buffered)
	err := lines.Encode(backupHead{backupFormat, b.Installation, b.Created, b.Buckets})
	for i := 0; err == nil && i < len(b.Records); i++ {
		err = lines.Encode(b.Records[i])
	}
	if err = errors.Join(err, buffered.Flush()); err != nil {
		return err
	}
	return json.NewEncoder(w).Encode(backupEnd{len(b.Records), hex.EncodeToString(sum.Sum(nil))})
}

var (
	errNoBackup  = errors.New("this is no file of `leaf backup`, or one of another version")
	errCutBackup = errors.New("the file is cut off or damaged: its last line does not fit the lines before; " +
		"use another backup")
)

// ParseBackup reads what [Backup.Write] wrote. It refuses a file of which anything is missing or changed.
func ParseBackup(data []byte) (b Backup, err error) {
	body, last := cutLastLine(data)
	first, rest, _ := bytes.Cut(body, []byte("\n"))
	var head backupHead
	if decodeWhole(first, &head) != nil || head.Format != backupFormat {
		// Where the first line is the last one, too, the file was cut off there.
		if !bytes.HasPrefix(data, []byte(`{"format":"`+backupFormat+`"`)) {
			return b, errNoBackup
		}
		return b, errCutBackup
	}
	var end backupEnd
	sum := sha256.Sum256(body)
	if decodeWhole(last, &end) != nil || end.SHA256 != hex.EncodeToString(sum[:]) ||
		end.Records != bytes.Count(rest, []byte("\n")) {
		return b, errCutBackup
	}
	b = Backup{Installation: head.Installation, Created: head.Created, Buckets: head.Buckets}
	for line := range bytes.Lines(rest) {
		var r Record
		if err := decodeWhole(line, &r); err != nil {
			return b, fmt.Errorf("%w: record %d: %w", errNoBackup, len(b.Records)+1, err)
		}
		b.Records = append(b.Records, r)
	}
	return b, b.check()
}

// cutLastLine returns the last line, and all lines before it.
func cutLastLine(data []byte) (before, last []byte) {
	at := bytes.LastIndexByte(bytes.TrimSuffix(data, []byte("\n")), '\n') + 1
	return data[:at], data[at:]
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
