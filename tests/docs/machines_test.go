package docs

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nkeys"

	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/tests/kit"
)

// stubs stand for programs that the commands of SECURITY.md use: the nats CLI, which makes keys, and ssh, to a machine
// whose /etc/leafbus is a folder.
var stubs = map[string]string{
	"nats": `case $3 in gen) cp "$KEYS/${6%.seed}" "$6" ;; show) cat "$KEYS/$4.public" ;; esac`,
	"ssh":  `h=${1#root@}; shift; sh -c "$(printf %s "$*" | sed "s|/etc/leafbus|$MACHINES/$h|g")"`,
}

// The commands of SECURITY.md make everything that three machines need: each could start, with a certificate for its
// name, and Prometheus can read its file.
func TestThreeMachines(t *testing.T) {
	t.Parallel()
	_, section, _ := strings.Cut(read(t, "SECURITY.md"), "\n## Three machines\n")
	section, _, _ = strings.Cut(section, "\n## ")
	var script string
	for _, block := range find("(?ms)^```sh\n(.*?)^```$", section) {
		if find(`(?m)^(leaf|for host .*; do ssh) `, block[1]) == nil { // these need the machines
			script += block[1]
		}
	}
	dir := t.TempDir()
	kit.Must(t, os.CopyFS(filepath.Join(dir, "deploy"), os.DirFS("../../deploy")))
	put := func(name, text string, mode os.FileMode) {
		t.Helper()
		path := filepath.Join(dir, name)
		kit.Must(t, os.MkdirAll(filepath.Dir(path), 0o755))
		kit.Must(t, os.WriteFile(path, []byte(text), mode))
	}
	for name, text := range stubs {
		put("bin/"+name, "#!/bin/sh\n"+text+"\n", 0o755)
	}
	for _, user := range []string{"generator", "shop", "importer", "operator", "watch"} {
		pair, err := nkeys.CreateUser()
		kit.Must(t, err)
		seed, err1 := pair.Seed()
		public, err2 := pair.PublicKey()
		kit.Must(t, cmp.Or(err1, err2))
		put("keys/"+user, string(seed), 0o600)
		put("keys/"+user+".seed.public", public, 0o600)
	}
	run := exec.Command("bash", "-e", "-o", "pipefail", "-c",
		strings.Replace(script, "/run/credentials/leaf.service/secrets_", "/etc/leafbus/secrets/", 1))
	machines := filepath.Join(dir, "machines")
	run.Dir, run.Env = dir, append(os.Environ(), "KEYS="+dir+"/keys", "MACHINES="+machines,
		"PATH="+dir+"/bin:"+os.Getenv("PATH"))
	if out, err := run.CombinedOutput(); err != nil {
		t.Fatalf("the commands of SECURITY.md: %v: %s", err, out)
	}
	for _, host := range []string{"a", "b", "c"} {
		at := filepath.Join(machines, host)
		adapt := strings.NewReplacer("/etc/leafbus", at, "0.0.0.0:4222", testkit.FreeAddress(t), "0.0.0.0:8080", "127.0.0.1:0")
		for _, file := range []string{"nats.conf", "leaf.yaml"} {
			text, err := os.ReadFile(filepath.Join(at, file))
			kit.Must(t, err)
			kit.Must(t, os.WriteFile(filepath.Join(at, file), []byte(adapt.Replace(string(text))), 0o600))
		}
		found := kit.LeafOK(t, "serve", "--check", "--config", filepath.Join(at, "leaf.yaml"), "--data-dir", dir+"/data")
		if want := fmt.Sprintf(" for %s localhost 127.0.0.1\n", host); !strings.Contains(found, want) {
			t.Errorf("machine %s has no certificate%s: %s", host, want, found)
		}
		conf, err := os.ReadFile(filepath.Join(at, "nats.conf"))
		kit.Must(t, err)
		for _, want := range []string{"server_name: ", "client_advertise: ", " advertise: "} {
			if !strings.Contains(string(conf), want+host) {
				t.Errorf("nats.conf of %s lacks %s%s", host, want, host)
			}
		}
		if secrets, err := os.Stat(filepath.Join(at, "secrets")); err != nil || secrets.Mode().Perm() != 0o700 {
			t.Errorf("others may read the secrets of %s: %v, %v", host, secrets.Mode(), err)
		}
	}
	prometheus, err := os.ReadFile(filepath.Join(dir, "cluster/prometheus.yml"))
	if kit.Must(t, err); !strings.Contains(string(prometheus), "\n    scheme: https\n") ||
		!strings.Contains(string(prometheus), "\n          - c:8080\n") {
		t.Errorf("prometheus.yml: %s", prometheus)
	}
}
