// Command oldleaf serves IDs of leaf_alloc as Meituan's Leaf does, for the tests of moving from it: the same SQL, two
// segments a tag, the same steps, the same paths and errors over HTTP. It is not Leaf's code.
//
//	oldleaf ADDRESS DSN
package main

import (
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	_ "github.com/go-sql-driver/mysql"
)

// segmentPath is the path of the IDs of a tag.
const segmentPath = "/api/segment/get/"

func main() {
	if len(os.Args) != 3 {
		log.Fatal("usage: oldleaf ADDRESS DSN")
	}
	if err := run(os.Args[1], os.Args[2]); err != nil {
		log.Fatal(err)
	}
}

// run serves until the process is killed. Leaf drains nothing either.
func run(address, dsn string) error {
	db, err := sql.Open("mysql", dsn)
	if err != nil {
		return err
	}
	t := &tags{db: db, buffers: make(map[string]*buffer)}
	t.refresh() // Leaf starts also if that fails
	go func() {
		for range time.Tick(time.Minute) {
			t.refresh()
		}
	}()
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	fmt.Println("ready")
	http.HandleFunc(segmentPath, func(w http.ResponseWriter, r *http.Request) {
		id, err := t.next(strings.TrimPrefix(r.URL.Path, segmentPath))
		if err != nil {
			fail(w, r, err)
			return
		}
		w.Header().Set("Content-Type", "text/plain;charset=UTF-8")
		fmt.Fprint(w, id)
	})
	return http.Serve(listener, nil)
}

// failure is Leaf's error body.
type failure struct {
	Timestamp int64  `json:"timestamp"`
	Status    int    `json:"status"`
	Error     string `json:"error"`
	Exception string `json:"exception"`
	Message   string `json:"message"`
	Path      string `json:"path"`
}

func fail(w http.ResponseWriter, r *http.Request, err error) {
	w.Header().Set("Content-Type", "application/json;charset=UTF-8")
	w.WriteHeader(http.StatusInternalServerError)
	code := strconv.Itoa(codeNone)
	if errors.Is(err, errUnknown) {
		code = strconv.Itoa(codeUnknown)
	}
	_ = json.NewEncoder(w).Encode(failure{ // the caller may be gone
		Timestamp: time.Now().UnixMilli(), Status: http.StatusInternalServerError,
		Error:     http.StatusText(http.StatusInternalServerError),
		Exception: "com.sankuai.inf.leaf.server.exception.LeafServerException",
		Message:   "Result{id=" + code + ", status=EXCEPTION}", Path: r.URL.Path,
	})
}
