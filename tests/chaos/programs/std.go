package programs

import (
	_ "embed"
	"fmt"
	"path/filepath"
)

// chaosFile is added to Go's package syscall. The go command ignores folders with a leading underscore.
//
//go:embed _std/chaos.go
var chaosFile string

// standardEdits make Go's own packages obey a [Control]. libfaketime cannot do that, because a Go program reads the
// clock without libc. Package syscall is below package time and below all that write files. arch is a GOARCH.
func standardEdits(arch string) []Edit {
	const clock, common = "src/time/time.go", "src/syscall/syscall_unix.go"
	edits := []Edit{
		{clock, "\t\"math/bits\"\n", "\t\"math/bits\"\n\t\"syscall\"\n"},
		// Only the wall clock moves. Inside a bubble of synctest, Now has returned before this line.
		{clock, "\tmono -= startNano\n\tsec += ",
			"\tsec, nsec = syscall.ChaosNow(sec, nsec)\n\tmono -= startNano\n\tsec += "},
		{common, "func Write(", "func realWrite("},
		{common, "func Pwrite(", "func realPwrite("},
	}
	system := "src/syscall/zsyscall_linux_" + arch + ".go"
	for _, name := range []string{"Fsync", "Fdatasync", "Ftruncate", "Statfs"} {
		edits = append(edits, Edit{system, "func " + name + "(", "func real" + name + "("})
	}
	return edits
}

// addStandard adds the edited files of the standard library to files, which has the new text for each path.
func addStandard(files map[string]string, env goEnv) error {
	if err := apply(files, env.GOROOT, standardEdits(env.GOARCH)); err != nil {
		return fmt.Errorf("standardEdits in tests/chaos/programs/std.go do not fit %s, adapt them: %w", env.GOVERSION, err)
	}
	files[filepath.Join(env.GOROOT, "src/syscall/chaos.go")] = chaosFile
	return nil
}
