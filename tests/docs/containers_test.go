package docs

import (
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"go.yaml.in/yaml/v3"

	"github.com/leafbus/leafbus/tests/kit"
)

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

// No test runs containers: an engine is nothing that every developer has. What stands in docker-compose.yml and
// Dockerfile is compared with what leaf, NATS and the servers of the tests themselves say. A drill starts generators
// with these settings.
func TestContainers(t *testing.T) {
	t.Parallel()
	check := func(ok bool, what ...any) {
		t.Helper()
		if !ok {
			t.Error(what...)
		}
	}
	var file struct {
		Services map[string]service
		Volumes  map[string]any
		Configs  map[string]struct{ Content, File string }
	}
	text := regexp.MustCompile(`\$\{\w+:-(\w*)\}`).ReplaceAllString(read(t, "docker-compose.yml"), "$1")
	kit.Must(t, yaml.Unmarshal([]byte(text), &file))
	help := kit.LeafOK(t, "serve", "--help")
	drain, err := time.ParseDuration(group(`--drain-timeout .*\(default (\w+)\)`, help))
	kit.Must(t, err)
	users := make(map[string]string) // of volumes
	generators := 0
	for name, s := range file.Services {
		for _, port := range s.Ports {
			check(strings.HasPrefix(port, "127.0.0.1:"), name, "is published to all:", port)
		}
		check(s.NetworkMode == "", name, "has the network", s.NetworkMode)
		check(len(s.Volumes) > 0, name, "begins with an empty folder in each container")
		for _, v := range s.Volumes {
			volume, folder, _ := strings.Cut(v, ":")
			_, declared := file.Volumes[volume]
			check(declared && users[volume] == "", name, "shares the volume, or it is not declared:", v)
			check(s.Build == "" || folder == s.Environment["LEAF_DATA_DIR"], name, "keeps its data outside", v)
			users[volume] = name
		}
		for other := range s.DependsOn {
			check(file.Services[other].Image != "", name, "depends on", other)
		}
		if s.Build == "" {
			check(len(s.HealthCheck.Test) > 1, name, "has no health check")
		}
		for _, c := range s.Configs {
			declared, ok := file.Configs[c.Source]
			check(ok, name, "has a configuration that is not declared:", c.Source)
			if declared.File != "" {
				read(t, declared.File)
			}
		}
		if s.Build == "" {
			continue
		}
		generators++
		for variable := range s.Environment {
			check(find(`\[\$`+variable+`[\],]`, help) != nil, "leaf serve knows no", variable)
		}
		check(s.StopGracePeriod > drain, name, "is killed while it drains")
	}
	check(generators == 2 && len(users) == len(file.Volumes), generators, "generators, and volumes of", users)

	// NATS keeps what it confirmed, in its volume, and is asked for its health where it answers.
	bus := file.Services["nats"]
	conf := filepath.Join(t.TempDir(), "nats.conf")
	kit.Must(t, os.WriteFile(conf, []byte(file.Configs[bus.Configs[0].Source].Content), 0o600))
	opts, err := server.ProcessConfigFile(conf)
	kit.Must(t, err)
	look, err := url.Parse(bus.HealthCheck.Test[len(bus.HealthCheck.Test)-1])
	kit.Must(t, err)
	check(look.Host == fmt.Sprintf("%s:%d", opts.HTTPHost, opts.HTTPPort), "the health check of NATS looks at", look)
	check(bus.Configs[0].Target == "/etc/nats/nats-server.conf", "NATS does not read", bus.Configs)
	check(bus.Volumes[0] == "nats:"+opts.StoreDir, "NATS keeps its data outside", bus.Volumes)
	check(opts.JetStream && opts.SyncAlways, "NATS has no JetStream, or loses what it confirmed in a power failure")

	// Prometheus asks each generator, with the token of operators, as the job that the rules know.
	var prometheus struct {
		RuleFiles     []string `yaml:"rule_files"`
		ScrapeConfigs []struct {
			JobName       string `yaml:"job_name"`
			Authorization map[string]string
			StaticConfigs []struct{ Targets []string } `yaml:"static_configs"`
		} `yaml:"scrape_configs"`
	}
	kit.Must(t, yaml.Unmarshal([]byte(file.Configs["prometheus.yml"].Content), &prometheus))
	job := prometheus.ScrapeConfigs[0]
	check(len(prometheus.RuleFiles) == 1 && prometheus.RuleFiles[0] == "alerts.yml", "Prometheus has other rules")
	check(job.Authorization["credentials_file"] == file.Services["leaf1"].Environment["LEAF_HTTP_ADMIN_TOKEN_FILE"],
		"Prometheus has another token", job.Authorization)
	check(strings.Contains(read(t, "deploy/prometheus/prometheus.yml"), "job_name: "+job.JobName+"\n"),
		"the rules know no job", job.JobName)
	for _, target := range job.StaticConfigs[0].Targets {
		name, port, _ := strings.Cut(target, ":")
		check(strings.HasSuffix(file.Services[name].Environment["LEAF_HTTP"], ":"+port), "nothing answers at", target)
	}
	check(len(job.StaticConfigs[0].Targets) == generators, "Prometheus asks", job.StaticConfigs)

	// Versions are those that the tests run.
	docker, mod := strings.ReplaceAll(read(t, "Dockerfile"), "\\\n", " "), read(t, "go.mod")
	says, err := exec.Command("/usr/sbin/mariadbd", "--version").Output()
	kit.Must(t, err)
	jars, err := filepath.Glob("/usr/share/java/zookeeper-[0-9]*.jar")
	kit.Must(t, err)
	for image, want := range map[string]string{
		file.Services["mariadb"].Image:          "mariadb:" + group(`(\d+\.\d+)`, string(says)),
		file.Services["zookeeper"].Image:        "zookeeper:" + group(`(\d+\.\d+)`, fmt.Sprint(jars)),
		bus.Image:                               "nats:" + group(`nats-server/v2 v(\d+\.\d+)`, mod) + "-alpine",
		group(`FROM .*?(\S+) AS build`, docker): "golang:" + group(`(?m)^go (\d+\.\d+)`, mod) + "-bookworm",
	} {
		check(image == want, "there is", image, "and the tests run", want)
	}

	// The image runs leaf without a shell, as a user who owns the volume, built as make build does.
	user, volume := group(`(?m)^USER ([1-9]\d*:[1-9]\d*)$`, docker), group(`(?m)^VOLUME (\S+)$`, docker)
	for _, line := range []string{
		`ENTRYPOINT ["/leaf"]`, `CMD ["serve"]`, `CMD ["/leaf", "health"]`, "ENV LEAF_DATA_DIR=" + volume,
		"COPY --from=build --chown=" + user + " /out/data " + volume,
		"go build " + group(`\$\(GO\) build (.*) -o bin/leaf`, read(t, "Makefile")) + " -o /out/leaf ./cmd/leaf",
	} {
		check(strings.Contains(docker, line+"\n"), "the Dockerfile lacks", line)
	}
	check(user != "", "the image has no user but root")

	// A version ends in +dirty where a file that git knows is kept from the build.
	list := exec.Command("git", "ls-files", "--cached", "--ignored", "--exclude-from=.dockerignore")
	list.Dir = "../.."
	out, err := list.CombinedOutput()
	check(err == nil && len(out) == 0, ".dockerignore leaves out files that git knows:", string(out), err)
	check(!strings.Contains(read(t, ".dockerignore"), "\n/.git"), ".dockerignore leaves out .git")
}
