package main

import (
	"log/slog"
	"net/url"

	"github.com/spf13/pflag"

	"github.com/leafbus/leafbus/bus/embedded"
	"github.com/leafbus/leafbus/snowflake"
	"github.com/leafbus/leafbus/snowflake/zookeeper"
)

// zookeeperFlags say whether and where the workers are kept in ZooKeeper.
type zookeeperFlags struct{ hosts, name string }

func (f *zookeeperFlags) register(fs *pflag.FlagSet) {
	fs.StringVar(&f.hosts, "zookeeper", "", "keep the workers in ZooKeeper, `HOSTS` such as h1:2181,h2:2181,h3:2181 (default in JetStream)")
	fs.StringVar(&f.name, "zookeeper-name", zookeeper.DefaultName, "`NAME` of the installation in ZooKeeper: its nodes are under /leaf/NAME")
	group(fs, groupState, "zookeeper", "zookeeper-name")
}

func (f *zookeeperFlags) check() error {
	if f.hosts == "" {
		if f.name != zookeeper.DefaultName {
			return usagef("--zookeeper-name without --zookeeper: name its servers too")
		}
		return nil
	}
	if err := (zookeeper.Config{Hosts: f.hosts, Name: f.name}).Validate(); err != nil {
		return usagef("--zookeeper, --zookeeper-name: %w", err)
	}
	return nil
}

// registry returns the registry in ZooKeeper. Without a node it is for administration. The port of an
// embedded NATS server is what the generator is known by there.
func (f *zookeeperFlags) registry(node string, layout snowflake.Layout, own *embedded.Server, log *slog.Logger) (*zookeeper.Registry, error) {
	if node == "" {
		log = log.With("for", "administration")
	}
	cfg := zookeeper.Config{Hosts: f.hosts, Name: f.name, Node: node, Layout: layout, Log: log}
	if own != nil {
		if at, err := url.Parse(own.ClientURL()); err == nil {
			cfg.Port = at.Port()
		}
	}
	return zookeeper.New(cfg)
}
