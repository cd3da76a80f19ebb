package bustest

import (
	"context"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/bus/admin"
	"github.com/leafbus/leafbus/bus/audit"
	"github.com/leafbus/leafbus/bus/kvstore"
)

// Audit compares the IDs that the program under test took, which the options have, with what the
// generator claimed, as `leaf audit` does. It fails the test for each contradiction: an ID that was
// taken twice or never claimed, or records and events that contradict each other. The test goes on,
// and gets the report.
//
// An ID that the generator claimed and has not handed out yet is no contradiction. Without IDs,
// only the generator is audited. Audit fails the test at once if the generator is stopped.
func (g *Generator) Audit(t testing.TB, o audit.Options) *audit.Report {
	t.Helper()
	if g.stopped() {
		t.Fatalf("bustest: audit: the generator is stopped: Restart it first")
	}
	// a test's own context is over during its cleanup
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	js, err := jetstream.New(g.conn)
	if err != nil {
		t.Fatal(err)
	}
	report, err := audit.Run(ctx, kvstore.AuditSource(admin.NewClient(g.conn), js), o)
	if err != nil {
		t.Fatalf("bustest: audit: %v", err)
	}
	for _, contradiction := range report.Contradictions {
		t.Errorf("audit: %s: %s", contradiction.Kind, contradiction.Message)
	}
	return report
}
