package installation

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// temporary returns an error if a folder is in an emptyDir of Kubernetes, or in a container's own layer there: it ends
// with its pod. mounts is as /proc/self/mountinfo.
func temporary(folder string, mounts io.Reader) error {
	at, source, kind := "", "", ""
	lines := bufio.NewScanner(mounts)
	for lines.Scan() {
		// 36 35 98:0 /source /mount/point options - ext3 /dev/root options
		mount, rest, ok := strings.Cut(lines.Text(), " - ")
		fields := strings.Fields(mount)
		if !ok || len(fields) < 5 || len(fields[4]) < len(at) {
			continue
		}
		inside, err := filepath.Rel(fields[4], folder)
		if err == nil && inside != ".." && !strings.HasPrefix(inside, "../") {
			at, source = fields[4], fields[3]
			kind, _, _ = strings.Cut(rest, " ")
		}
	}
	switch {
	case strings.Contains(source, "kubernetes.io~empty-dir"):
		return fmt.Errorf("the data folder %s is in an emptyDir, which ends with its pod", folder)
	case kind == "overlay" && os.Getenv("KUBERNETES_SERVICE_HOST") != "":
		return fmt.Errorf("the data folder %s is in the container's own layer, which ends with its pod", folder)
	}
	return nil
}

// lasts returns an error if the folder ends with its pod.
func (f *Folder) lasts() error {
	mounts, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil // another system
	}
	defer mounts.Close()
	return temporary(f.Path, mounts)
}
