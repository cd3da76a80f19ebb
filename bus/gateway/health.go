package gateway

import (
	"net/http"

	"github.com/leafbus/leafbus/bus/generator"
)

// healthz answers 200 if the process is alive, and 503 if only a restart of it helps.
func (s *Server) healthz(w http.ResponseWriter, _ *http.Request) {
	if s.cfg.Dead != nil && s.cfg.Dead() != nil {
		http.Error(w, "only a restart of this process helps", http.StatusServiceUnavailable)
		return
	}
	w.Header()["Content-Type"] = plainType
	_, _ = w.Write([]byte("ok"))
}

// readyz answers 200 if the generator is ready, else 503, and what is missing. Why it is
// missing is told to those who show the token.
func (s *Server) readyz(w http.ResponseWriter, r *http.Request) {
	ready := s.cfg.Generator.Readiness()
	if !s.knows(r) {
		ready.Reasons = nil
	}
	write(w, statusOf(ready.Ready), ready)
}

// wanted answers 200 if requests of a kind should come to this generator, else 503.
func (s *Server) wanted(kind generator.Kind) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		ready, wanted := s.cfg.Generator.Readiness(), s.cfg.Generator.Wanted(kind)
		serves := ready.Segment
		if kind == generator.SnowflakeKind {
			serves = ready.Snowflake
		}
		write(w, statusOf(wanted), struct {
			Kind   string `json:"kind"`
			Serves bool   `json:"serves"` // it can answer with IDs
			Wanted bool   `json:"wanted"` // it can, or no other can that it knows of
		}{kind.String(), serves, wanted})
	}
}

func statusOf(ok bool) int {
	if ok {
		return http.StatusOK
	}
	return http.StatusServiceUnavailable
}
