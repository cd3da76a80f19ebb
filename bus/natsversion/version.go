package natsversion

import (
	"fmt"
	"strings"

	"golang.org/x/mod/semver"
)

// Bounds of versions.
//
// Up to 2.9.20 a cluster accepts two writes that expect the same revision, if they
// come within milliseconds (nats-server #4320).
//
// #5841 needs no bound of its own: 2.10.19 with one replica accepts the expected
// revision of a record that is not there. Leafbus never removes records, and such a
// write puts the record back as it was read.
//
// #6194 is a warning: in a cluster before 2.11 a replica that restarts while two
// generators write at once can keep another record than its leader did. If it leads
// later, the record may be behind: ranges below what a generator saw are refused, but
// a generator that saw nothing has only the event stream. That takes a conflict, a
// restart and an election, and 2.10 runs in many places, so it is not refused.
const (
	least     = "v2.9.21"
	leastNext = "v2.10.0"   // its pre-releases were made before and after the fix
	sound     = "v2.11.0-0" // with the first pre-release of 2.11
)

// Refusal says that a NATS server must not be used, and what to do. It is one
// sentence.
type Refusal string

func (r Refusal) Error() string { return string(r) }

// canonical turns the version of a greeting into what package semver reads.
func canonical(version string) string { return "v" + strings.TrimPrefix(version, "v") }

// check returns a Refusal if a server must not be used. A pre-release is older than
// its release. A version that cannot be read is refused too: the compare-and-set of such
// a build may be broken, and every nats-server names a version.
func check(server, version string) error {
	switch v := canonical(version); {
	case !semver.IsValid(v):
		return Refusal(fmt.Sprintf("the NATS server %s reports %q, which is no version such as 2.11.9, so its compare-and-set may repeat IDs: "+
			"run a released nats-server, %s or later, on every server", server, version, least[1:]))
	case semver.Compare(v, least) < 0,
		semver.MajorMinor(v) == semver.MajorMinor(leastNext) && semver.Compare(v, leastNext) < 0:
		return Refusal(fmt.Sprintf("the NATS server %s has version %s, whose compare-and-set lets two generators reserve the same IDs in a cluster: "+
			"upgrade every NATS server to %s or later, best to 2.11 or later", server, version, least[1:]))
	}
	return nil
}

// isSound reports whether a version that passed check needs no warning in a cluster.
func isSound(version string) bool { return semver.Compare(canonical(version), sound) >= 0 }
