package zookeeper

import (
	"fmt"
	"os"
	"os/exec"
	"strings"

	"github.com/leafbus/leafbus/tests/daemon"
)

// jars are where Debian keeps them. That of ZooKeeper names all others that it
// needs; the second lets it log to its standard error.
var jars = []string{"/usr/share/java/zookeeper.jar", "/usr/share/java/slf4j-simple.jar"}

// launch starts a server with the configuration file of its folder.
func launch(folder, config, log string) (*daemon.Process, error) {
	cmd, err := command("java", jars, config)
	if err != nil {
		return nil, err
	}
	cmd.Dir = folder // where java would write of its own crash
	return daemon.Launch(daemon.Program{
		Name: "zookeeper", Command: cmd, Log: log,
		PortTaken: "java.net.BindException: Address already in use",
		Stopped:   143, // that of java for SIGTERM
	})
}

// command runs a server.
func command(java string, jars []string, config string) (*exec.Cmd, error) {
	const remedy = "make test installs it, and so does tests/install.sh"
	path, err := exec.LookPath(java)
	if err != nil {
		return nil, fmt.Errorf("%s is not installed: %s", java, remedy)
	}
	for _, jar := range jars {
		if _, err := os.Stat(jar); err != nil {
			return nil, fmt.Errorf("%w: %s", err, remedy)
		}
	}
	return exec.Command(path,
		// They make it start fast and stay small, and leave no file in the
		// system's temporary folder when it is killed.
		"-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto", "-Xmx128m", "-XX:-UsePerfData",
		"-Dorg.slf4j.simpleLogger.showDateTime=true", "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
		// Else the log ends with the questions of whoever waits for the server.
		"-Dorg.slf4j.simpleLogger.log.org.apache.zookeeper.server.NIOServerCnxn=warn",
		"-cp", strings.Join(jars, ":"), "org.apache.zookeeper.server.quorum.QuorumPeerMain", config), nil
}
