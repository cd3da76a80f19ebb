package admin_test

import (
	"testing"

	"github.com/leafbus/leafbus/internal/testkit"
)

// TestMain finds goroutines that are left.
func TestMain(m *testing.M) { testkit.Main(m) }
