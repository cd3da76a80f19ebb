package mariadb

import (
	"fmt"
	"os"
	"os/exec"

	"github.com/leafbus/leafbus/tests/daemon"
)

// launch starts mariadbd.
func launch(log string, args []string) (*daemon.Process, error) {
	cmd, err := command("mariadbd", args...)
	if err != nil {
		return nil, err
	}
	return daemon.Launch(daemon.Program{
		Name: "mariadbd", Command: cmd, Log: log, PortTaken: "Bind on TCP/IP port",
	})
}

// command is one of MariaDB's programs that reads no configuration files.
func command(name string, args ...string) (*exec.Cmd, error) {
	path, err := find(name)
	if err != nil {
		return nil, err
	}
	first := []string{"--no-defaults"} // it counts only there
	if os.Geteuid() == 0 {
		first = append(first, "--user=root") // mariadbd refuses root unless told
	}
	return exec.Command(path, append(first, args...)...), nil
}

// find looks where Debian keeps servers too, which is often not on the PATH.
func find(name string) (string, error) {
	for _, path := range []string{name, "/usr/sbin/" + name, "/usr/local/sbin/" + name} {
		if found, err := exec.LookPath(path); err == nil {
			return found, nil
		}
	}
	return "", fmt.Errorf("%s is not installed: make test installs it, and so does "+
		"apt-get install mariadb-server-core mariadb-client-core", name)
}

// install makes a data folder with the tables that every server has.
func install(data, temp string) error {
	cmd, err := command("mariadb-install-db", "--datadir="+data, "--tmpdir="+temp,
		"--auth-root-authentication-method=normal", "--skip-test-db", logSize,
		// Run by root, it would otherwise change the owner of a plugin of the
		// system's own server.
		"--rpm")
	if err != nil {
		return err
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("mariadb-install-db: %w\n%s", err, out) // the cause comes first
	}
	return nil
}
