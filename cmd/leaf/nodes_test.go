package main

import (
	"testing"

	"github.com/leafbus/leafbus/bus"
)

// The address is what Prometheus calls the generator.
func TestHTTPOf(t *testing.T) {
	t.Parallel()
	for want, s := range map[string]bus.State{
		"-":              {Host: "leaf1"},
		"127.0.0.1:8080": {Host: "leaf1", HTTP: "127.0.0.1:8080"},
		"leaf1:8080":     {Host: "leaf1", HTTP: "0.0.0.0:8080"},
		"leaf2:9":        {Host: "leaf2", HTTP: "[::]:9"},
		"[::]:9":         {HTTP: "[::]:9"},
		"[fd00::1]:9":    {Host: "leaf2", HTTP: "[fd00::1]:9"},
	} {
		if got := httpOf(s); got != want {
			t.Errorf("%+v: %s, want %s", s, got, want)
		}
	}
}
