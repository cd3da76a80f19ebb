package faults

import (
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/internal/wire"
	"github.com/leafbus/leafbus/tests/kit"
)

// installations are losses of the record that says whose a NATS is. A newcomer with an empty disk makes no second
// one beside a generator that runs, whatever else was lost: it waits. Tags that could begin at 1 again are not
// created.
var installations = []scenario{
	{
		fault: "the record of the installation is lost", in: []setup{kvAlone, mysqlAlone}, tags: none,
		strike: func(in *installation) {
			highest := in.take(order)
			in.loseInstallation()
			in.above(order, highest+1)
			in.ready(2)
		},
	},
	{
		fault: "a generator starts while NATS has no JetStream", tags: none,
		in: []setup{{name: "kv", nodes: 1, config: oneAccount("jetstream: enabled,")}},
		strike: func(in *installation) {
			in.take(order)
			in.stop(0)
			in.nats.configure(oneAccount(""))
			in.begin(0)
			in.take(snowflakes) // the folder has the worker
			in.lacking(1, "store", "")
			in.nats.configure(oneAccount("jetstream: enabled,"))
			in.take(order)
			in.ready(1)
		},
	},
	{
		// It serves what it can, names what waits, and goes on. A tag of --tag is not unknown meanwhile.
		fault: "a generator starts while its database or registry is away", in: []setup{mysqlAlone, zooKeeperAlone},
		tags: none, flags: []string{"--max-wait", "1s"},
		strike: func(in *installation) {
			in.take(order)
			in.stop(0)
			way, waits, lacks, reason := in.keeper, "snowflakes", snowflakes, bus.NoWorkerID
			if in.mysql {
				way, waits, lacks, reason = in.ways[0], "segments", order, bus.StoreUnavailable
			} else {
				in.forgetFolder(0) // it has the worker
			}
			way.Refuse(true)
			in.begin(0)
			if in.nodes[0].Waiting != waits {
				in.Errorf("the ready line says that %q wait", in.nodes[0].Waiting)
			}
			in.refused(lacks, 1, reason, "")
			if _, err := in.request(lacks, 1); err == nil || is(err, bus.UnknownTag) {
				in.Errorf("answered %v, want %s", err, reason)
			}
			if in.mysql {
				in.take(snowflakes)
			} else {
				in.take(order)
			}
			way.Refuse(false)
			in.take(lacks)
			in.ready(1)
		},
	},
}

// oneAccount is a configuration of NATS, with or without JetStream for all who connect.
func oneAccount(jetStream string) string {
	return "accounts { A: { " + jetStream + " users: [ { user: a, password: p } ] } }, no_auth_user: a"
}

// loseInstallation deletes the record, starts a newcomer, and restores the record.
func (in *installation) loseInstallation() {
	in.Helper()
	entry, err := in.bucket(wire.BucketInstallation).Get(in.Context(), "installation")
	kit.Must(in.T, err)
	kit.Must(in.T, in.js.DeleteStream(in.Context(), "KV_"+wire.BucketInstallation))
	fresh := in.enter()
	testkit.Eventually(in.T, "the newcomer says what is lost, and who runs", func() bool {
		log := in.nodes[fresh].Stderr()
		return strings.Contains(log, "lost the record of installation") && strings.Contains(log, "n0 runs as part of it")
	})
	if _, err := in.js.KeyValue(in.Context(), wire.BucketInstallation); err == nil {
		in.Error("there is a second record, or a bucket that would be in the way of a restore")
	}
	for range 6 { // whichever generator answers; a database would know such a tag
		if err := in.create(`{"tag":"late"}`); !in.mysql && (err == nil || is(err, bus.Exists)) {
			in.Errorf("a tag was created: %v", err)
		}
	}
	kv, err := in.js.CreateKeyValue(in.Context(), jetstream.KeyValueConfig{Bucket: wire.BucketInstallation})
	kit.Must(in.T, err)
	_, err = kv.Put(in.Context(), "installation", entry.Value())
	kit.Must(in.T, err)
}
