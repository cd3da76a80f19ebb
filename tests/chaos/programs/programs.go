// Package programs builds leaf and nats-server for chaos. A [Control] changes the clock and the disk of one process.
// Leaf can also get deliberate faults. No file changes: go build reads the edited ones through an overlay.
package programs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// Edit is a change of a file of this module.
type Edit struct {
	File   string // relative to the root of the module
	Before string // what the file has exactly once
	After  string // what replaces it
}

// Build builds leaf with edits of its code into the folder dir, and returns its path. It needs Linux, because the
// edits of Go's package syscall do.
func Build(ctx context.Context, dir string, edits ...Edit) (leaf string, err error) {
	leaf = filepath.Join(dir, "leaf")
	return leaf, build(ctx, leaf, "github.com/leafbus/leafbus/cmd/leaf", edits)
}

// BuildNATS builds nats-server, of the version that leaf embeds, into the folder dir, and returns its path. It needs
// Linux, too.
func BuildNATS(ctx context.Context, dir string) (nats string, err error) {
	nats = filepath.Join(dir, "nats-server")
	return nats, build(ctx, nats, "github.com/nats-io/nats-server/v2", nil)
}

func build(ctx context.Context, path, pkg string, edits []Edit) error {
	if runtime.GOOS != "linux" {
		return fmt.Errorf("the clock of a process cannot be moved on %s: run chaos on Linux", runtime.GOOS)
	}
	env, err := readGoEnv(ctx)
	if err != nil {
		return err
	}
	files := make(map[string]string)
	if err := addStandard(files, env); err != nil {
		return err
	}
	root := filepath.Dir(env.GOMOD)
	if err := apply(files, root, edits); err != nil {
		return err
	}
	temp, err := os.MkdirTemp("", "leaf-overlay-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temp)
	overlay, err := writeOverlay(temp, files)
	if err != nil {
		return err
	}
	_, err = run(ctx, root, "build", "-overlay", overlay, "-o", path, pkg)
	return err
}

// goEnv is what go env says of the Go that builds, and of the module of the working folder.
type goEnv struct{ GOROOT, GOVERSION, GOARCH, GOMOD string }

func readGoEnv(ctx context.Context) (env goEnv, err error) {
	out, err := run(ctx, "", "env", "-json", "GOROOT", "GOVERSION", "GOARCH", "GOMOD")
	if err != nil {
		return env, err
	}
	if err := json.Unmarshal(out, &env); err != nil {
		return env, fmt.Errorf("go env: %w", err)
	}
	if env.GOMOD == "" || env.GOMOD == os.DevNull {
		return env, errors.New("no go.mod here: run it in a folder of Leafbus")
	}
	return env, nil
}

// run runs the go command in a folder, and returns its stdout.
func run(ctx context.Context, dir string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, stderr.String())
	}
	return out, nil
}

// apply makes edits of files below root. The new text of each goes into files, by its path; later edits see it.
func apply(files map[string]string, root string, edits []Edit) error {
	for _, e := range edits {
		path := filepath.Join(root, e.File)
		text, ok := files[path]
		if !ok {
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			text = string(data)
		}
		if n := strings.Count(text, e.Before); n != 1 {
			return fmt.Errorf("%s has %d times, not once, the text to change: %q", path, n, e.Before)
		}
		files[path] = strings.Replace(text, e.Before, e.After, 1)
	}
	return nil
}

// writeOverlay writes the new texts of files into dir, and the file for the flag -overlay of go build.
func writeOverlay(dir string, files map[string]string) (string, error) {
	replace := make(map[string]string)
	for path, text := range files {
		replace[path] = filepath.Join(dir, fmt.Sprintf("%d.go", len(replace)))
		if err := os.WriteFile(replace[path], []byte(text), 0o600); err != nil {
			return "", err
		}
	}
	data, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	name := filepath.Join(dir, "overlay.json")
	return name, os.WriteFile(name, data, 0o600)
}
