package docs

import (
	"encoding/json"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"go.yaml.in/yaml/v3"

	"github.com/leafbus/leafbus/tests/kit"
)

// No test runs containers: an engine is nothing that every developer has. What stands in the files is compared with what
// leaf, NATS and the servers of the tests themselves say. A drill starts generators with these settings.

// service is one of docker-compose.yml.
type service struct {
	Image, Build    string
	Environment     map[string]string
	Configs         []struct{ Source, Target string }
	Ports, Volumes  []string
	HealthCheck     struct{ Test []string } `yaml:"healthcheck"`
	StopGracePeriod time.Duration           `yaml:"stop_grace_period"`
	DependsOn       map[string]any          `yaml:"depends_on"`
	NetworkMode     string                  `yaml:"network_mode"`
}

// text is the first group of an expression in a text; empty: it is not there.
func text(expression, in string) string {
	m := regexp.MustCompile(expression).FindStringSubmatch(in)
	if m == nil {
		return ""
	}
	return m[1]
}

func TestContainers(t *testing.T) {
	t.Parallel()
	var compose struct {
		Services map[string]service
		Volumes  map[string]any
		Configs  map[string]struct{ Content string }
	}
	kit.Must(t, yaml.Unmarshal([]byte(regexp.MustCompile(`\$\{\w+:-(\w*)\}`).ReplaceAllString(read(t, "docker-compose.yml"), "$1")), &compose))
	docker := strings.ReplaceAll(read(t, "Dockerfile"), "\\\n", " ")
	help := kit.LeafOK(t, "serve", "--help")

	check := func(ok bool, format string, args ...any) {
		t.Helper()
		if !ok {
			t.Errorf(format, args...)
		}
	}
	users := make(map[string]string) // of volumes
	generators := 0
	for name, s := range compose.Services {
		for _, port := range s.Ports {
			check(strings.HasPrefix(port, "127.0.0.1:"), "%s publishes %s to all", name, port)
		}
		check(s.NetworkMode == "" && len(s.Volumes) > 0, "%s has the network %q and the volumes %q", name, s.NetworkMode, s.Volumes)
		for _, v := range s.Volumes {
			volume, folder, _ := strings.Cut(v, ":")
			_, declared := compose.Volumes[volume]
			check(declared && users[volume] == "", "%s has the volume %s, which is %s's or not declared", name, v, users[volume])
			users[volume] = name
			check(s.Build == "" || folder == s.Environment["LEAF_DATA_DIR"], "%s keeps its data outside %s", name, v)
		}
		for other := range s.DependsOn {
			check(compose.Services[other].Image != "", "%s depends on %s, which is not there", name, other)
		}
		if s.Build == "" {
			check(len(s.HealthCheck.Test) > 1 && s.HealthCheck.Test[0] == "CMD", "%s has the health check %q", name, s.HealthCheck.Test)
			continue
		}
		generators++
		for variable := range s.Environment {
			check(strings.Contains(help, "[$"+variable+"]") || strings.Contains(help, "[$"+variable+","), "leaf serve knows no %s", variable)
		}
		drain, err := time.ParseDuration(text(`--drain-timeout .*\(default (\w+)\)`, help))
		check(err == nil && s.StopGracePeriod > drain, "%s has %v to stop, and drains for %v", name, s.StopGracePeriod, drain)
	}
	check(generators == 2 && len(users) == len(compose.Volumes), "%d generators, volumes of %v", generators, users)

	// NATS keeps what it confirmed.
	bus := compose.Services["nats"]
	conf := filepath.Join(t.TempDir(), "nats.conf")
	kit.Must(t, os.WriteFile(conf, []byte(compose.Configs[bus.Configs[0].Source].Content), 0o600))
	opts, err := server.ProcessConfigFile(conf)
	kit.Must(t, err)
	check(opts.JetStream && opts.SyncAlways && bus.Volumes[0] == "nats:"+opts.StoreDir && bus.Configs[0].Target == "/etc/nats/nats-server.conf",
		"JetStream %v, sync always %v, in %s; %+v", opts.JetStream, opts.SyncAlways, opts.StoreDir, bus)
	look, err := url.Parse(bus.HealthCheck.Test[len(bus.HealthCheck.Test)-1])
	check(err == nil && look.Host == net.JoinHostPort(opts.HTTPHost, strconv.Itoa(opts.HTTPPort)), "the health check of NATS looks at %v", look)

	// Versions are those that the tests run.
	says, err := exec.Command("/usr/sbin/mariadbd", "--version").Output()
	kit.Must(t, err)
	jars, err := filepath.Glob("/usr/share/java/zookeeper-[0-9]*.jar")
	kit.Must(t, err)
	minor := func(in string) string { return text(`(\d+\.\d+)`, in) }
	for where, want := range map[string]string{
		compose.Services["mariadb"].Image:   "mariadb:" + minor(string(says)),
		compose.Services["zookeeper"].Image: "zookeeper:" + minor(fmt.Sprint(jars)),
		bus.Image:                           "nats:" + minor(text(`nats-server/v2 v(\S+)`, read(t, "go.mod"))) + "-alpine",
		text(`FROM (\S+) AS build`, docker): "golang:" + minor(text(`(?m)^go (\S+)`, read(t, "go.mod"))) + "-bookworm",
	} {
		check(where == want, "there is %q, and the tests run %q", where, want)
	}

	// The image runs leaf without a shell, as a user who owns the volume, built as make build does.
	for instruction, want := range map[string][]string{"ENTRYPOINT": {"/leaf"}, "CMD": {"serve"}, "HEALTHCHECK.* CMD": {"/leaf", "health"}} {
		var words []string
		err := json.Unmarshal([]byte(text(`(?m)^`+instruction+` (\[.*\])$`, docker)), &words)
		check(err == nil && strings.Join(words, " ") == strings.Join(want, " "), "%s is %q, want %q", instruction, words, want)
	}
	user, volume := text(`(?m)^USER ([1-9]\d*:[1-9]\d*)$`, docker), text(`(?m)^VOLUME (\S+)$`, docker)
	check(user != "" && strings.Contains(docker, "COPY --from=build --chown="+user+" /out/data "+volume+"\n") &&
		strings.Contains(docker, "ENV LEAF_DATA_DIR="+volume+"\n"), "user %s, volume %s: its folder is another's, or no data is there", user, volume)
	flags := text(`go build (.*) -o`, docker)
	check(flags != "" && flags == text(`\$\(GO\) build (.*) -o bin/leaf`, read(t, "Makefile")), "the Dockerfile builds with %q", flags)

	// A version ends in +dirty where a file that git knows is kept from the build.
	list := exec.Command("git", "ls-files", "--cached", "--ignored", "--exclude-from=.dockerignore")
	list.Dir = "../.."
	out, err := list.CombinedOutput()
	check(err == nil && len(out) == 0 && !strings.Contains(read(t, ".dockerignore"), "\n/.git"), ".dockerignore leaves out %s: %v", out, err)
}
