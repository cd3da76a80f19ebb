package clients

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/internal/natskit"
	"github.com/leafbus/leafbus/tests/kit"
)

// script answers requests for IDs as a case says, over NATS or HTTP.
type script struct {
	url string

	mu       sync.Mutex
	tag      string   // of the case: requests for others are late ones of an earlier case
	answers  []string // the next one is the first. The last one stays
	requests int
	next     int64 // of "ids"
}

// answer is what a request gets.
type answer struct {
	silent bool
	after  time.Duration
	text   string
	err    *bus.Error
}

// begin makes the answers of a case those that count, for its tag.
func (s *script) begin(tag string, answers []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tag, s.answers, s.requests, s.next = tag, answers, 0, 1
}

// count returns how many requests have come.
func (s *script) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.requests
}

// restart counts from 0 again.
func (s *script) restart() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = 0
}

// take returns the answer to a request for n IDs of a tag.
func (s *script) take(tag string, n int64) (a answer, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if tag != s.tag {
		return answer{silent: true}, nil
	}
	s.requests++
	words := strings.Fields(s.answers[0])
	if len(s.answers) > 1 {
		s.answers = s.answers[1:]
	}
	if words[0] == "after" {
		ms, err := strconv.Atoi(words[1])
		if err != nil {
			return a, err
		}
		a.after, words = time.Duration(ms)*time.Millisecond, words[2:]
	}
	switch words[0] {
	case "none":
		a.silent = true
	case "one":
		if n > 1 {
			a.err = &bus.Error{Code: 413, Reason: bus.BatchTooLarge, Message: "too many"}
			return a, nil
		}
		fallthrough
	case "ids":
		a.text = bus.Range{First: s.next, Last: s.next + n - 1}.String()
		s.next += n
	case "error":
		a.err = &bus.Error{Reason: bus.Reason(words[2]), Message: "the script says so"}
		if a.err.Code, err = strconv.Atoi(words[1]); err != nil {
			return a, err
		}
		if len(words) > 3 {
			ms, err := strconv.Atoi(words[3])
			if err != nil {
				return a, err
			}
			a.err.RetryAfter = time.Duration(ms) * time.Millisecond
		}
	default:
		a.text = strings.ReplaceAll(words[0], `\n`, "\n")
	}
	return a, nil
}

// overNATS answers on a NATS server of its own. Nobody answers there for snowflakes.
func overNATS(t *testing.T) *script {
	t.Helper()
	server := natskit.Start(t)
	nc := natskit.Connect(t, server)
	s := &script{url: server.ClientURL()}
	_, err := nc.Subscribe("leaf.segment.>", func(msg *nats.Msg) {
		n, err := strconv.ParseInt(string(msg.Data), 10, 64)
		if err != nil {
			t.Errorf("a request is %q", msg.Data)
			return
		}
		a, err := s.take(strings.TrimPrefix(msg.Subject, "leaf.segment."), n)
		if err != nil {
			t.Error(err)
		}
		if a.silent {
			return
		}
		reply := nats.NewMsg(msg.Reply)
		reply.Data = []byte(a.text)
		if a.err != nil {
			reply.Data, _ = json.Marshal(a.err) // it is encoded as generators do it
			reply.Header.Set("Nats-Service-Error-Code", strconv.Itoa(a.err.Code))
			reply.Header.Set("Nats-Service-Error", a.err.Message)
		}
		time.AfterFunc(a.after, func() { _ = nc.PublishMsg(reply) }) // at the end of the test there is no connection
	})
	kit.Must(t, err)
	kit.Must(t, nc.Flush())
	return s
}

// overHTTP answers on a port of its own. For snowflakes it closes the connection.
func overHTTP(t *testing.T) *script {
	t.Helper()
	s := &script{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		tag, ok := strings.CutPrefix(r.URL.Path, "/v1/segments/")
		if !ok {
			panic(http.ErrAbortHandler)
		}
		n, err := strconv.ParseInt(r.FormValue("count"), 10, 64)
		if err != nil {
			t.Errorf("a request is %s", r.URL)
			return
		}
		a, err := s.take(tag, n)
		if err != nil {
			t.Error(err)
		}
		wait := time.NewTimer(a.after)
		defer wait.Stop()
		if a.silent {
			<-r.Context().Done()
			return
		}
		select {
		case <-wait.C:
		case <-r.Context().Done():
			return
		}
		if e := a.err; e != nil {
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(e.Code)
			_ = json.NewEncoder(w).Encode(map[string]any{
				"type": "about:blank", "title": http.StatusText(e.Code), "status": e.Code, "detail": e.Message,
				"reason": e.Reason, "retry_after_ms": e.RetryAfter.Milliseconds(),
			})
			return
		}
		var ranges []string
		for line := range strings.SplitSeq(a.text, "\n") {
			first, last, ok := strings.Cut(line, "-")
			if !ok {
				last = first
			}
			ranges = append(ranges, fmt.Sprintf(`{"first":%q,"last":%q}`, first, last))
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"count":%d,"ranges":[%s]}`, n, strings.Join(ranges, ","))
	}))
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	s.url = server.URL
	return s
}
