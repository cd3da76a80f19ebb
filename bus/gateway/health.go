package gateway

import (
	"net/http"

	"github.com/leafbus/leafbus/bus"
)

// healthz answers that the process is alive.
func healthz(w http.ResponseWriter, _ *http.Request) {
	w.Header()["Content-Type"] = plainType
	_, _ = w.Write([]byte("ok"))
}

// readyz answers 200 if the generator is ready in the sense of ok, else 503, and what is
// missing. Why it is missing is told to those who show the token.
func (s *Server) readyz(ok func(bus.Readiness) bool) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		ready := s.cfg.Generator.Readiness()
		status := http.StatusServiceUnavailable
		if ok(ready) {
			status = http.StatusOK
		}
		if !s.knows(r) {
			ready.Reasons = nil
		}
		write(w, status, ready)
	}
}
