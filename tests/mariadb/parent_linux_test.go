package mariadb

import (
	"testing"

	"github.com/leafbus/leafbus/tests/daemon"
)

func TestServerDiesWithTheTest(t *testing.T) { daemon.CheckOrphan(t) }
