package main

import (
	"encoding/json"
	"os"
	"path"
	"path/filepath"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/leafbus/leafbus/tests/kit"
)

// registryFaults are about ZooKeeper.
var registryFaults = []*fault{
	{
		name: "zk-kill", about: "kill -9 of ZooKeeper, which comes back after up to 20 s", weight: 1,
		store: "mysql", harms: []string{harmsRegistry},
		strike: func(s *strike) {
			kit.Must(s, s.zk.Kill())
			s.last(0, 20*time.Second)
			kit.Must(s, s.zk.Run())
		},
	},
	{
		name: "zk-hang", about: "SIGSTOP of ZooKeeper for up to 20 s", weight: 1,
		store: "mysql", harms: []string{harmsRegistry},
		strike: func(s *strike) {
			kit.Must(s, s.zk.Freeze())
			s.last(time.Second, 20*time.Second)
			kit.Must(s, s.zk.Thaw())
		},
	},
	{
		name: "zk-link", about: "ZooKeeper is cut off from one generator, or silent, in one direction or both",
		weight: 1, store: "mysql",
		strike: func(s *strike) { s.harmLink(s.machine().zk) },
	},
	{
		name: "zk-records", about: "the records of all workers are deleted in ZooKeeper", weight: 2,
		store: "mysql", harms: []string{harmsRegistry, harmsClocks, harmsNetwork},
		strike: func(s *strike) {
			s.deleteWorkers()
			s.reported()
		},
	},
	{
		name: "zk-wipe", about: "ZooKeeper loses all, and an operator makes the node of the installation again", weight: 2,
		store: "mysql", harms: []string{harmsRegistry, harmsClocks, harmsNetwork}, strike: wipeZooKeeper,
	},
	{
		name: "zk-back", about: "ZooKeeper is restored from a copy that is seconds old", weight: 2,
		store: "mysql", harms: []string{harmsRegistry, harmsClocks, harmsNetwork}, strike: restoreZooKeeper,
	},
}

// Nodes in ZooKeeper: docs/stores.md#zookeeper.
const (
	forever = "/leaf/leaf/leaf_forever"
	owner   = "/leaf/leaf/installation"
)

// inZooKeeper connects to ZooKeeper, past all links.
func (s *strike) inZooKeeper(f func(*zk.Conn)) {
	conn, _, err := zk.Connect([]string{s.zk.Addr()}, 10*time.Second, zk.WithLogInfo(false))
	kit.Must(s, err)
	defer conn.Close()
	f(conn)
}

// wipeZooKeeper ends with what operators must type by the product's error, with the values that were there.
func wipeZooKeeper(s *strike) {
	var record []byte
	var place string
	s.inZooKeeper(func(conn *zk.Conn) {
		var err error
		record, _, err = conn.Get(owner)
		kit.Must(s, err)
		places, _, err := conn.Children(owner)
		kit.Must(s, err)
		place = places[0]
	})
	kit.Must(s, s.zk.Kill())
	s.excuseForgotten(streamWorkers)
	kit.Must(s, os.RemoveAll(s.zk.Data()))
	kit.Must(s, s.zk.Run())
	s.last(0, 8*time.Second)
	s.inZooKeeper(func(conn *zk.Conn) {
		for _, node := range []struct {
			path string
			data []byte
		}{{"/leaf", nil}, {path.Dir(owner), nil}, {owner, record}, {path.Join(owner, place), nil}} {
			_, err := conn.Create(node.path, node.data, 0, zk.WorldACL(zk.PermAll))
			kit.Must(s, err)
		}
	})
	s.reported()
}

// restoreZooKeeper lets records change after the copy was made: one by a restart, or all by a loss.
func restoreZooKeeper(s *strike) {
	saved := filepath.Join(s.dir, "zookeeper-copy")
	kit.Must(s, os.RemoveAll(saved))
	kit.Must(s, s.zk.Kill()) // the copy of a running one can be unusable
	kit.Must(s, os.CopyFS(saved, os.DirFS(s.zk.Data())))
	kit.Must(s, s.zk.Run())
	switch s.IntN(3) {
	case 0:
		s.reported()
		s.deleteWorkers()
		s.reported()
	case 1:
		m := s.machine()
		m.kill()
		m.start()
		s.reported()
	}
	s.last(0, 15*time.Second)
	kit.Must(s, s.zk.Kill())
	s.excuseForgotten(streamWorkers)
	kit.Must(s, os.RemoveAll(s.zk.Data()))
	kit.Must(s, os.CopyFS(s.zk.Data(), os.DirFS(saved)))
	kit.Must(s, s.zk.Run())
	s.reported()
}

func (s *strike) deleteWorkers() {
	s.excuseForgotten(streamWorkers)
	s.inZooKeeper(func(conn *zk.Conn) {
		names, _, err := conn.Children(forever)
		kit.Must(s, err)
		for _, name := range names {
			kit.Must(s, conn.Delete(path.Join(forever, name), -1))
		}
	})
}

// reported waits until each generator that should run has written its worker's record.
func (s *strike) reported() {
	now := time.Now().UnixMilli()
	s.inZooKeeper(func(conn *zk.Conn) {
		s.must("each generator has a record in ZooKeeper", func() bool {
			names, _, err := conn.Children(forever)
			written := make(map[string]bool) // by holder
			for _, name := range names {
				var record struct{ Node string } // its holder; the name is that of the first one
				text, stat, err := conn.Get(path.Join(forever, name))
				if err == nil && stat.Mtime > now && json.Unmarshal(text, &record) == nil {
					written[record.Node] = true
				}
			}
			for _, m := range s.machines {
				if m.isWanted() && !written[m.node()] {
					return false
				}
			}
			return err == nil
		})
	})
}
