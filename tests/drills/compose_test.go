//go:build drills

package drills

import (
	"database/sql"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	_ "github.com/go-sql-driver/mysql" // for database/sql
	"github.com/nats-io/nats-server/v2/server"
	"go.yaml.in/yaml/v3"

	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/tests/kit"
)

// composeNATS runs a NATS server with a configuration of docker-compose.yml, but for addresses and the folder of its
// state.
func composeNATS(t *testing.T, conf string) (address string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "nats.conf")
	writeFile(t, file, conf)
	opts, err := server.ProcessConfigFile(file)
	kit.Must(t, err)
	opts.Host, opts.Port, opts.HTTPPort = "127.0.0.1", server.RANDOM_PORT, server.RANDOM_PORT
	opts.StoreDir, opts.NoSigs = t.TempDir(), true
	ns, err := server.NewServer(opts)
	kit.Must(t, err)
	ns.Start()
	t.Cleanup(func() { ns.Shutdown(); ns.WaitForShutdown() })
	if !ns.ReadyForConnections(kit.Patience) {
		t.Fatal("NATS is not ready")
	}
	testkit.Eventually(t, "a healthy NATS", func() bool { return status(ns.MonitorAddr().String(), "/healthz") == 200 })
	return ns.Addr().String()
}

// The generators of docker-compose.yml start with exactly these settings, beside a NATS and a MariaDB that have theirs.
// They keep their tags in the database and their workers in ZooKeeper, and the health check of the image knows whether
// they run.
func TestDrillCompose(t *testing.T) {
	var file struct {
		Services map[string]struct {
			Build       string
			Command     []string
			Environment map[string]string
			Configs     []struct{ Source, Target string }
		}
		Configs map[string]struct{ Content string }
	}
	text := regexp.MustCompile(`\$\{\w+:-(\w*)\}`).ReplaceAllString(page(t, "docker-compose.yml"), "$1")
	kit.Must(t, yaml.Unmarshal([]byte(text), &file))

	// The image of MariaDB makes the account and the database of these variables.
	db := kit.NewMariaDB(t, file.Services["mariadb"].Command...)
	env := file.Services["mariadb"].Environment
	kit.SQL(t, db.DSN(""), "CREATE DATABASE "+env["MARIADB_DATABASE"],
		"CREATE USER "+env["MARIADB_USER"]+" IDENTIFIED BY '"+env["MARIADB_PASSWORD"]+"'",
		"GRANT ALL ON "+env["MARIADB_DATABASE"]+".* TO "+env["MARIADB_USER"])
	addresses := []string{"nats:4222", composeNATS(t, file.Configs["nats.conf"].Content), "mariadb:3306", db.Addr(),
		"zookeeper:2181", kit.NewZooKeeper(t).Addr()}

	health := regexp.MustCompile(`HEALTHCHECK .* CMD \["/leaf", "(\w+)"\]`).FindStringSubmatch(page(t, "Dockerfile"))[1]
	started := 0
	for _, name := range slices.Sorted(maps.Keys(file.Services)) {
		s := file.Services[name]
		if s.Build == "" {
			continue
		}
		at := testkit.FreeAddress(t)
		secrets := t.TempDir()
		here := strings.NewReplacer(append(addresses, "0.0.0.0:8080", at, "/data", t.TempDir(), "/secrets", secrets)...)
		for _, c := range s.Configs {
			kit.Must(t, os.WriteFile(here.Replace(c.Target), []byte(here.Replace(file.Configs[c.Source].Content)), 0o444))
		}
		var env []string
		for variable, value := range s.Environment {
			env = append(env, variable+"="+here.Replace(value))
		}
		token, admin := file.Configs["token"].Content, file.Configs["admin-token"].Content
		run := func(args ...string) kit.Result {
			return kit.Finish(t, kit.Start(t, kit.Command(t, t.TempDir(), env, args...)))
		}
		run(health).Want(t, 3) // it does not run
		g := kit.Start(t, kit.Command(t, t.TempDir(), env, "serve"))
		testkit.Eventually(t, name+" is ready", func() bool {
			return answer(at, "/readyz", token) == 200
		})
		for given, want := range map[string]int{"": 401, token: 401, admin: 200} {
			if code := answer(at, "/metrics", given); code != want {
				t.Errorf("%s answers %d to the token %q, want %d", name, code, given, want)
			}
		}
		if !strings.Contains(g.Stdout(), "mode=joined") {
			t.Errorf("%s: %s", name, g.Stdout())
		}
		run(health).Want(t, 0)
		if started++; started == 1 {
			continue
		}
		ids := run("get", s.Environment["LEAF_TAG"], "-n", "10")
		if ids.Want(t, 0); len(strings.Fields(ids.Stdout)) != 10 {
			t.Errorf("ten IDs are %q", ids.Stdout)
		}
		if workers := run("workers", "--json"); !strings.Contains(workers.Stdout, `"zookeeper"`) {
			t.Errorf("the workers are %s", workers.Stdout)
		}
		table, err := sql.Open("mysql", db.DSN("leaf"))
		kit.Must(t, err)
		defer table.Close()
		var maxID int64
		row := table.QueryRow("SELECT max_id FROM leaf_alloc WHERE biz_tag = ?", s.Environment["LEAF_TAG"])
		if err := row.Scan(&maxID); err != nil || maxID <= 10 {
			t.Errorf("max_id in the database is %d: %v", maxID, err)
		}
		kit.Must(t, g.Stop())
		run(health).Want(t, 3) // it has stopped, and another generator's answer does not count
	}
}

// answer is the status that an address answers to a path, for those who have this token; 0: none.
func answer(address, path, token string) int {
	r, err := http.NewRequest("GET", "http://"+address+path, nil)
	if err != nil {
		return 0
	}
	r.Header.Set("Authorization", "Bearer "+token)
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0
	}
	answer.Body.Close()
	return answer.StatusCode
}
