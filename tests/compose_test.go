package tests

import (
	"database/sql"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql" // for database/sql
	"github.com/nats-io/nats-server/v2/server"
	"go.yaml.in/yaml/v3"

	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/tests/mariadb"
	"github.com/leafbus/leafbus/tests/zookeeper"
)

// No test runs containers: an engine is nothing that every developer has. What
// stands in the files is compared with what leaf, NATS and MariaDB themselves say.

// composeFile is docker-compose.yml.
type composeFile struct {
	Services map[string]composeService
	Volumes  map[string]any
	Configs  map[string]struct{ Content string }
}

type composeService struct {
	Image, Build    string
	Command         []string
	Environment     map[string]string
	Configs         []struct{ Source, Target string }
	Ports, Volumes  []string
	HealthCheck     struct{ Test []string } `yaml:"healthcheck"`
	StopGracePeriod time.Duration           `yaml:"stop_grace_period"`
	DependsOn       map[string]any          `yaml:"depends_on"`
	NetworkMode     string                  `yaml:"network_mode"`
}

// topFile is a file at the top of the repository.
func topFile(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile("../" + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// compose reads docker-compose.yml as it is for whoever sets no variable.
func compose(t *testing.T) composeFile {
	t.Helper()
	text := regexp.MustCompile(`\$\{\w+:-(\w*)\}`).ReplaceAllString(topFile(t, "docker-compose.yml"), "$1")
	if strings.Contains(text, "$") {
		t.Errorf("docker-compose.yml has a variable without a default")
	}
	var file composeFile
	if err := yaml.Unmarshal([]byte(text), &file); err != nil {
		t.Fatal(err)
	}
	return file
}

// generators are the names of the services that run leaf.
func (f composeFile) generators() []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(f.Services)), func(name string) bool { return f.Services[name].Build == "" })
}

// mounts are the folders of a service's volumes.
func (s composeService) mounts() []string {
	var folders []string
	for _, v := range s.Volumes {
		_, folder, _ := strings.Cut(v, ":")
		folders = append(folders, folder)
	}
	return folders
}

// minor is the 1.26 of 1.26.0.
func minor(version string) string {
	return regexp.MustCompile(`^v?(\d+\.\d+)`).FindStringSubmatch(version + ".")[1]
}

func TestComposeRunsTheVersionsThatAreTested(t *testing.T) {
	t.Parallel()
	services := compose(t).Services
	mariadbd := "mariadbd"
	if _, err := exec.LookPath(mariadbd); err != nil {
		mariadbd = "/usr/sbin/mariadbd" // which is often not on the PATH
	}
	says, err := exec.Command(mariadbd, "--version").Output()
	if err != nil {
		t.Fatalf("mariadbd --version: %v", err)
	}
	mariaDB := regexp.MustCompile(`\d+\.\d+`).FindString(string(says))
	zooKeeper := regexp.MustCompile(`\d+\.\d+`).FindString(sayOf(t, zookeeper.Hosts(t), "srvr"))
	nats := goList(t, "-m", "-f", "{{.Version}}", "github.com/nats-io/nats-server/v2")[0]
	language := goList(t, "-m", "-f", "{{.GoVersion}}")[0]
	for _, c := range []struct{ where, image, want string }{
		{"docker-compose.yml", services["mariadb"].Image, "mariadb:" + mariaDB},
		{"docker-compose.yml", services["zookeeper"].Image, "zookeeper:" + zooKeeper},
		{"docker-compose.yml", services["nats"].Image, "nats:" + minor(nats) + "-alpine"},
		{"Dockerfile", dockerfile(t, "FROM")[0], "golang:" + minor(language) + "-bookworm AS build"},
	} {
		if c.image != c.want {
			t.Errorf("%s has %q, the tests run %q", c.where, c.image, c.want)
		}
	}
}

// sayOf is what a ZooKeeper server answers to a command of four letters.
func sayOf(t *testing.T, addr, command string) string {
	t.Helper()
	conn, err := net.DialTimeout("tcp", addr, patience)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(patience))
	if _, err := io.WriteString(conn, command); err != nil {
		t.Fatal(err)
	}
	says, err := io.ReadAll(conn)
	if err != nil {
		t.Fatal(err)
	}
	return string(says)
}

// Everybody else reads and writes what is meant for this machine.
func TestComposePublishesOnLoopbackOnly(t *testing.T) {
	t.Parallel()
	for name, s := range compose(t).Services {
		for _, port := range s.Ports {
			if !strings.HasPrefix(port, "127.0.0.1:") {
				t.Errorf("%s publishes %s, not on 127.0.0.1", name, port)
			}
		}
		if s.NetworkMode != "" {
			t.Errorf("%s has the network %s", name, s.NetworkMode)
		}
	}
}

// A service without a volume begins anew whenever its container does, and two
// generators must not share one.
func TestComposeKeepsState(t *testing.T) {
	t.Parallel()
	file := compose(t)
	users := make(map[string]string)
	for name, s := range file.Services {
		if len(s.Volumes) == 0 {
			t.Errorf("%s has no volume", name)
		}
		for _, v := range s.Volumes {
			volume, _, _ := strings.Cut(v, ":")
			if _, declared := file.Volumes[volume]; !declared {
				t.Errorf("%s: no volume is called %q", name, volume)
			}
			if other, taken := users[volume]; taken {
				t.Errorf("%s and %s share the volume %s", name, other, volume)
			}
			users[volume] = name
		}
	}
	for volume := range file.Volumes {
		if users[volume] == "" {
			t.Errorf("nobody uses the volume %s", volume)
		}
	}
	if got := file.generators(); len(got) < 2 {
		t.Errorf("the generators are %v, want two", got)
	}
	for _, name := range file.generators() {
		if s := file.Services[name]; !slices.Equal(s.mounts(), []string{s.Environment["LEAF_DATA_DIR"]}) {
			t.Errorf("%s keeps its data in %s, its volume is at %v", name, s.Environment["LEAF_DATA_DIR"], s.mounts())
		}
	}
}

func TestComposeChecksHealth(t *testing.T) {
	t.Parallel()
	file := compose(t)
	for name, s := range file.Services {
		if s.Build == "" && (len(s.HealthCheck.Test) < 2 || s.HealthCheck.Test[0] != "CMD") {
			t.Errorf("the health check of %s is %q", name, s.HealthCheck.Test)
		}
		for other := range s.DependsOn {
			if _, there := file.Services[other]; !there {
				t.Errorf("%s depends on %s, which is not there", name, other)
			}
		}
	}
	if got := execForm(t, "HEALTHCHECK"); len(got) < 2 || got[0] != "/leaf" {
		t.Errorf("the health check of generators is %q", got)
	}
}

func TestComposeKnowsLeaf(t *testing.T) {
	t.Parallel()
	file := compose(t)
	help := leafOK(t, "serve", "--help")
	drain, err := time.ParseDuration(regexp.MustCompile(`--drain-timeout .*\(default (\w+)\)`).FindStringSubmatch(help)[1])
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range file.generators() {
		s := file.Services[name]
		for variable := range s.Environment {
			if !strings.Contains(help, "[$"+variable+"]") && !strings.Contains(help, "[$"+variable+",") {
				t.Errorf("%s: leaf serve knows no %s", name, variable)
			}
		}
		if s.Build != "." || s.Command != nil {
			t.Errorf("%s does not run what the Dockerfile makes of this folder", name)
		}
		if s.StopGracePeriod <= drain {
			t.Errorf("%s is killed %v after SIGTERM, while it may drain for %v", name, s.StopGracePeriod, drain)
		}
	}
}

// composeNATS runs a NATS server as docker-compose.yml does, but for addresses
// and the folder of its state, and returns its host:port.
func composeNATS(t *testing.T, file composeFile) string {
	t.Helper()
	s := file.Services["nats"]
	if len(s.Configs) != 1 || s.Configs[0].Target != "/etc/nats/nats-server.conf" {
		t.Fatalf("the image reads /etc/nats/nats-server.conf, not %+v", s.Configs)
	}
	conf := filepath.Join(t.TempDir(), "nats.conf")
	writeFile(t, conf, file.Configs[s.Configs[0].Source].Content)
	opts, err := server.ProcessConfigFile(conf)
	if err != nil {
		t.Fatal(err)
	}
	if !opts.JetStream || !opts.SyncAlways || !slices.Equal(s.mounts(), []string{opts.StoreDir}) {
		t.Errorf("JetStream %v, sync always %v, in %s; want both, in the volume %v", opts.JetStream, opts.SyncAlways, opts.StoreDir, s.mounts())
	}
	look, err := url.Parse(s.HealthCheck.Test[len(s.HealthCheck.Test)-1])
	if err != nil || look.Host != net.JoinHostPort(opts.HTTPHost, strconv.Itoa(opts.HTTPPort)) {
		t.Errorf("the health check looks at %v, the server is at %s:%d", look, opts.HTTPHost, opts.HTTPPort)
	}

	opts.Host, opts.Port, opts.HTTPPort = "127.0.0.1", server.RANDOM_PORT, server.RANDOM_PORT
	opts.StoreDir, opts.NoSigs = t.TempDir(), true
	ns, err := server.NewServer(opts)
	if err != nil {
		t.Fatal(err)
	}
	ns.Start()
	t.Cleanup(func() { ns.Shutdown(); ns.WaitForShutdown() })
	if !ns.ReadyForConnections(patience) {
		t.Fatal("NATS is not ready")
	}
	look.Host = ns.MonitorAddr().String()
	testkit.Eventually(t, "a healthy NATS", func() bool {
		answer, err := http.Get(look.String())
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		return answer.StatusCode == http.StatusOK
	})
	return ns.Addr().String()
}

// composeMariaDB runs a MariaDB server as docker-compose.yml does, with the
// account and the database that the image makes for these variables.
func composeMariaDB(t *testing.T, s composeService) *mariadb.Server {
	t.Helper()
	db := mariadb.New(t, s.Command...)
	env := s.Environment
	root, err := sql.Open("mysql", db.DSN(""))
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	for _, statement := range []string{
		"CREATE DATABASE " + env["MARIADB_DATABASE"],
		"CREATE USER " + env["MARIADB_USER"] + " IDENTIFIED BY '" + env["MARIADB_PASSWORD"] + "'",
		"GRANT ALL ON " + env["MARIADB_DATABASE"] + ".* TO " + env["MARIADB_USER"],
	} {
		if _, err := root.ExecContext(t.Context(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	return db
}

// The generators start with exactly these settings, and keep their tags in the
// database and their workers in ZooKeeper.
func TestComposeStarts(t *testing.T) {
	t.Parallel()
	file := compose(t)
	db := composeMariaDB(t, file.Services["mariadb"])
	addresses := map[string]string{"nats:4222": composeNATS(t, file), "mariadb:3306": db.Addr(), "zookeeper:2181": zookeeper.New(t).Addr()}
	var first []string // the environment
	var running []*generator
	var checks []func() (status int)
	for _, name := range file.generators() {
		s := file.Services[name]
		s.Environment["LEAF_DATA_DIR"] = t.TempDir()
		_, port, _ := strings.Cut(testkit.FreeAddress(t), ":")
		addresses["0.0.0.0:8080"] = "0.0.0.0:" + port // all generators are on one machine here
		var env []string
		for variable, value := range s.Environment {
			for here, there := range addresses {
				value = strings.Replace(value, here, there, 1)
			}
			env = append(env, variable+"="+value)
		}
		check := func() int { return runLeaf(t, command(t, t.TempDir(), env, execForm(t, "HEALTHCHECK")[1:])).status }
		if first == nil {
			first = env
		}
		// Another generator's answer does not count.
		if status := check(); status != 3 {
			t.Errorf("the health check of %s, which does not run: exit status %d, want 3", name, status)
		}
		dir := t.TempDir()
		g := ready(t, dir, start(t, command(t, dir, env, execForm(t, "CMD"))))
		at := "http://127.0.0.1" + g.http[strings.LastIndex(g.http, ":"):]
		// It answers requests; a store or a registry that is slow may still be on its way.
		testkit.Eventually(t, name+" to be ready", func() bool {
			return fetch(t, "GET", at+"/readyz", "Authorization", "Bearer "+s.Environment["LEAF_HTTP_TOKEN"]).status == 200
		})
		if p := fetch(t, "GET", at+"/metrics"); p.status != 401 {
			t.Errorf("%s gives its metrics to all: %d", name, p.status)
		}
		if g.mode != "joined" || g.folder != s.Environment["LEAF_DATA_DIR"] {
			t.Errorf("%s: %s", name, g.stdout.String())
		}
		if status := check(); status != 0 {
			t.Errorf("the health check of %s: exit status %d", name, status)
		}
		running, checks = append(running, g), append(checks, check)
	}

	tag := file.Services[file.generators()[0]].Environment["LEAF_TAG"]
	got := runLeaf(t, command(t, t.TempDir(), first, []string{"get", tag, "-n", "10"}))
	if got.want(t, 0); len(strings.Fields(got.stdout)) != 10 {
		t.Errorf("ten IDs are %q", got.stdout)
	}
	got = runLeaf(t, command(t, t.TempDir(), first, []string{"workers", "--json"}))
	if got.want(t, 0); !strings.Contains(got.stdout, `"registry": "zookeeper"`) && !strings.Contains(got.stdout, `"registry":"zookeeper"`) {
		t.Errorf("the workers are %s", got.stdout)
	}
	table, err := sql.Open("mysql", db.DSN(file.Services["mariadb"].Environment["MARIADB_DATABASE"]))
	if err != nil {
		t.Fatal(err)
	}
	defer table.Close()
	var maxID int64
	if err := table.QueryRowContext(t.Context(), "SELECT max_id FROM leaf_alloc WHERE biz_tag = ?", tag).Scan(&maxID); err != nil || maxID <= 10 {
		t.Errorf("max_id in the database is %d: %v", maxID, err)
	}
	for i, g := range running {
		g.stop()
		if status := checks[i](); status != 3 {
			t.Errorf("the health check of %s, which has stopped: exit status %d, want 3", g.node, status)
		}
	}
}
