package installation

import (
	"strings"
	"testing"
)

// A data folder that ends with its pod is found, and none that lasts.
func TestTemporary(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
	const mounts = `21 1 0:30 / / rw - overlay overlay rw
22 21 8:1 /var/lib/kubelet/pods/1-2/volumes/kubernetes.io~empty-dir/scratch /scratch rw,relatime - ext4 /dev/sda1 rw
23 21 8:2 / /data rw - ext4 /dev/sdb rw
`
	for folder, want := range map[string]string{
		"/scratch/leaf": "an emptyDir", "/leaf-data": "own layer", "/datax": "own layer", "/data": "", "/data/leaf": "",
	} {
		err := temporary(folder, strings.NewReader(mounts))
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", folder, err, want)
		}
	}
}
