package tests

import (
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// dockerfile returns what follows an instruction of the Dockerfile, for each
// time that it is there; the last is the one of the image.
func dockerfile(t *testing.T, instruction string) []string {
	t.Helper()
	text := strings.ReplaceAll(topFile(t, "Dockerfile"), "\\\n", " ")
	var found []string
	for line := range strings.Lines(text) {
		if name, rest, _ := strings.Cut(strings.TrimSpace(line), " "); name == instruction {
			found = append(found, rest)
		}
	}
	if found == nil {
		t.Fatalf("the Dockerfile has no %s", instruction)
	}
	return found
}

// execForm is a command of the Dockerfile that is run without a shell.
func execForm(t *testing.T, instruction string) []string {
	t.Helper()
	all := dockerfile(t, instruction)
	text := all[len(all)-1]
	return parse[[]string](t, []byte(text[max(0, strings.Index(text, "[")):]))
}

func TestDockerfile(t *testing.T) {
	t.Parallel()
	if got := execForm(t, "ENTRYPOINT"); !slices.Equal(got, []string{"/leaf"}) {
		t.Errorf("the entry point is %q", got)
	}
	// A volume takes its owner from the image's folder.
	user, volume := dockerfile(t, "USER")[0], dockerfile(t, "VOLUME")[0]
	if !regexp.MustCompile(`^[1-9]\d*:[1-9]\d*$`).MatchString(user) {
		t.Errorf("the user is %s; want numbers, and not root's", user)
	}
	if owned := "--from=build --chown=" + user + " /out/data " + volume; !slices.Contains(dockerfile(t, "COPY"), owned) {
		t.Errorf("the Dockerfile does not give %s to its user %s", volume, user)
	}
	if env := dockerfile(t, "ENV"); !slices.Contains(env, "LEAF_DATA_DIR="+volume) {
		t.Errorf("the data folder is not the volume %s: %v", volume, env)
	}
	flags := regexp.MustCompile(`go build (.*) -o`)
	build := flags.FindStringSubmatch(strings.Join(dockerfile(t, "RUN"), "\n"))
	local := regexp.MustCompile(`\$\(GO\) build (.*) -o`).FindStringSubmatch(topFile(t, "Makefile"))
	if build == nil || local == nil || build[1] != local[1] {
		t.Errorf("the Dockerfile builds with %q, make build with %q", build, local)
	}
}

// A version ends in +dirty where a file that git knows is kept from the build.
func TestDockerfileSeesAllOfTheSources(t *testing.T) {
	t.Parallel()
	cmd := exec.Command("git", "ls-files", "--cached", "--ignored", "--exclude-from=.dockerignore")
	cmd.Dir = ".."
	if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf(".dockerignore leaves these files out: %s %v", out, err)
	}
	for line := range strings.Lines(topFile(t, ".dockerignore")) {
		if strings.HasPrefix(strings.TrimLeft(line, "*/"), ".git") {
			t.Errorf(".dockerignore leaves %s out, from which the build takes the version", line)
		}
	}
}
