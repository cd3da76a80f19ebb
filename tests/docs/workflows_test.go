package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/leafbus/leafbus/tests/kit"
)

// workflow is a file of .github/workflows.
type workflow struct {
	Name string
	Jobs map[string]struct {
		RunsOn   string `yaml:"runs-on"`
		Strategy struct{ Matrix map[string][]string }
		Steps    []struct {
			Uses, Run string
			With      map[string]string
		}
	}
}

// GitHub runs only what make has, on versions that the files name.
func TestWorkflows(t *testing.T) {
	files, err := filepath.Glob("../../.github/workflows/*.yml")
	kit.Must(t, err)
	ran := make(map[string]bool)
	for _, file := range files {
		text, err := os.ReadFile(file)
		kit.Must(t, err)
		var w workflow
		if err := yaml.Unmarshal(text, &w); err != nil || w.Name == "" {
			t.Errorf("%s: %v", file, err)
		}
		for name, job := range w.Jobs {
			if job.RunsOn == "" || len(job.Steps) == 0 {
				t.Errorf("%s: job %s runs nothing", file, name)
			}
			for _, step := range job.Steps {
				if step.Uses != "" && !regexp.MustCompile(`@v\d+$`).MatchString(step.Uses) {
					t.Errorf("%s: which version of %s?", file, step.Uses)
				}
				for _, path := range []string{step.With["go-version-file"], step.With["cache-dependency-path"]} {
					if path != "" {
						_ = read(t, path) // it exists
					}
				}
				for _, run := range append(job.Strategy.Matrix["run"], step.Run) {
					if run == step.Run {
						_, run, _ = strings.Cut(run, "make ")
					}
					for word := range strings.FieldsSeq(run) {
						if regexp.MustCompile(`^[a-z-]+$`).MatchString(word) {
							ran[word] = true
						}
					}
				}
			}
		}
	}
	makefile := read(t, "Makefile")
	for target := range ran {
		if !regexp.MustCompile(`(?m)^` + target + `:`).MatchString(makefile) {
			t.Errorf("make has no target %s", target)
		}
	}
	for _, target := range []string{"lint", "check", "test", "chaos", "chart", "drills", "mutations", "release", "release-check"} {
		if !ran[target] {
			t.Errorf("no workflow runs make %s", target)
		}
	}
}
