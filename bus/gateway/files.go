package gateway

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"io/fs"
	"net/http"
	"path"
	"time"
)

// The dashboard is plain files that a browser reads as they are: nothing builds
// them, and they load nothing from elsewhere.
//
//go:embed dashboard
var files embed.FS

// registerFiles serves the dashboard. Leaf's two pages lead to it.
func registerFiles(mux *http.ServeMux) {
	err := fs.WalkDir(files, "dashboard", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := files.ReadFile(name)
		if err != nil {
			return err
		}
		at := "/" + name
		if path.Base(name) == "index.html" {
			at = "/{$}"
		}
		mux.HandleFunc(at, file(path.Base(name), data))
		return nil
	})
	if err != nil {
		panic("gateway: the files in this program cannot be read: " + err.Error())
	}
	for _, leafs := range []string{"/cache", "/db"} {
		mux.Handle(leafs, http.RedirectHandler("/#tags", http.StatusFound))
	}
}

// file serves one file. A browser keeps it, and asks each time whether it has changed.
func file(name string, data []byte) http.HandlerFunc {
	sum := sha256.Sum256(data)
	tag := []string{`"` + hex.EncodeToString(sum[:8]) + `"`}
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header()["Cache-Control"] = []string{"no-cache"}
		w.Header()["Etag"] = tag
		http.ServeContent(w, r, name, time.Time{}, bytes.NewReader(data))
	}
}
