//go:build mutations

package cli

import (
	"testing"

	"github.com/leafbus/leafbus/internal/mutate"
)

// TestMutations demands that a test finds each of these changes, which break what a user relies on: where a setting
// comes from, that no secret is shown, and that a mistake has a status of its own. cmd/leaf has those of the commands.
func TestMutations(t *testing.T) {
	for _, m := range []struct {
		name, by string // by finds it
		edit     mutate.Edit
	}{
		{"wrong usage is a failure like any other", "TestRefusedConfiguration", mutate.Edit{"program.go",
			"usage = usage || !works\n", "usage = usage && !works\n"}},
		{"the environment beats a flag", "TestLists", mutate.Edit{"settings.go",
			"noted(f, noteGroup) != \"\" && !f.Changed && ", "noted(f, noteGroup) != \"\" && "}},
		{"a variable sets an argument", "TestVariables", mutate.Edit{"settings.go",
			"noted(f, noteGroup) != \"\" && !f.Changed && ", "!f.Changed && "}},
		{"a weaker source's password counts beside a file", "TestSecretFile", mutate.Edit{"settings.go",
			" && !given(beside(flags, f))", ""}},
		{"a number out of its bounds is taken", "TestRefusedConfiguration", mutate.Edit{"settings.go",
			"		case *value < least:", "		case false:"}},
		{"an unknown key is ignored", "TestRefusedConfiguration", mutate.Edit{"settings.go",
			"		if f == nil || key == \"config\" {", "		if f == nil {\n			continue\n		}\n		if key == \"config\" {"}},
		{"an error about the file shows a password", "TestRefusedConfiguration", mutate.Edit{"settings.go",
			"yamlLine.FindString(\" \"+err.Error())", "\" \"+err.Error()"}},
		{"an error about a server shows its password", "TestConnectRefusesBadFlags", mutate.Edit{"connect.go",
			"rest[strings.LastIndexByte(rest, '@')+1:]", "rest"}},
		{"the configuration that events show has secrets", "TestSecretFile", mutate.Edit{"settings.go",
			"		if noted(f, noteSecret) == \"\" && f.Value", "		if f.Value"}},
		{"the selected context is used for another server", "TestConnectThroughContext", mutate.Edit{"connect.go",
			"		if c.Server != \"\" && c.Context == \"\" {", "		if false {"}},
		{"a machine that is down is a failure like any other", "TestConnectToNobody", mutate.Edit{"connect.go",
			"dial.Op == \"dial\"", "dial.Op == \"\""}},
		{"a generator stays with a server that hangs", "TestConnectionLeavesAServerThatHangs", mutate.Edit{"connect.go",
			"		nats.PingInterval(pingEvery),\n", ""}},
		{"a certificate that is not trusted gets no advice", "TestConnectWithTLS", mutate.Edit{"connect.go",
			"	case badCert:\n", "	case false:\n		_ = badCert\n"}},
		{"timeout(1) ends a command without its stop", "TestSecondSignal", mutate.Edit{"program.go",
			"time.Since(first) >= oneSignal", "time.Since(first) >= 0"}},
		{"the terminal does what a description says", "TestPrintTable", mutate.Edit{"output.go",
			"Safe(fmt.Sprint(cell))", "fmt.Sprint(cell)"}},
	} {
		t.Run(m.name, func(t *testing.T) { mutate.Runner{}.Run(t, m.by, m.edit) })
	}
}
