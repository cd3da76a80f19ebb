package tests

import (
	"fmt"
	"go/ast"
	"go/constant"
	"go/parser"
	"go/token"
	"go/types"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// limits are what docs/limits.md must say in the row that begins so, with the constants of the
// code in braces.
var limits = []struct{ row, text string }{
	{"… layout", "In a new installation it lasts at least {snowflake.leastLeft} from its first start"},
	{"quota of a tag, and its burst", "| 1 to {allocator.LimitQuota} |"},
	{"time that IDs in memory should last", "`--outlast`, {allocator.DefaultOutlast}, or the tag's own time. 1 s to {allocator.LimitOutlast} |"},
	{"step of a tag", "`--max-step`, {allocator.DefaultMaxStep},"},
	{"description of a tag", "| {allocator.MaxDescription} characters"},
	{"… the key of a tag", "within {bus/kvstore.keyTimeout}. The log names the first {bus/kvstore.maxLostLogged} tags"},
	{"… IDs of requests for more than 256 each", "| {bus/generator.concealAhead} for each processor, for up to {bus/generator.concealWait}. Further"},
	{"… IDs that one request reveals", "| {bus.MostRevealed} |"},

	{"IDs in one request", "{allocator.DefaultMaxBatch} "},
	{"body of a request", "{bus.maxRequest KiB}"},
	{"requests that wait", "{allocator.DefaultMaxWaiting} of each kind. Each waits for up to `--max-wait`, {allocator.DefaultMaxWait}"},
	{"an overload", "begins when requests wait {bus/generator.tooLate} for a generator, and it read at least {bus/generator.fewRequests} meanwhile"},
	{"… what NATS passes on then", "as many requests as the generator answers in {bus/generator.backlogLasts}, at least {bus/generator.fewRequests}"},
	{"… ends", "for {bus/generator.calm}"},
	{"… how a generator measures it", "a probe every {bus/generator.probeEvery}, while it reads at least {bus/generator.busy} requests"},
	{"a request over HTTP, while its generator starts", "| waits for {bus/generator.startPatience}. "},
	{"refills under way", "{allocator.maxRefills} a generator, one a tag; {allocator.attemptTimeout} each. If another program locks the row of a tag: {allocator.maxLocked} such"},
	{"a generator lacks the IDs for a request", "Else after {allocator.slowAfter}, of a strict tag after {allocator.slowStrict} |"},
	{"… time and tries", "up to {bus/generator.borrowWithin} after the request came. A generator waits {bus/generator.offerWait} for an offer, {bus/generator.borrowWait} for the IDs. It makes {bus/generator.borrowTries} tries while the request waits, and {bus/generator.borrowTries} more"},
	{"… at the same time", "| {bus/generator.maxBorrowing} of each kind. "},
	{"… how long an offer counts", "| {bus/generator.offerLasts} |"},

	{"a call of the Go client", "Without a deadline {bus.DefaultTimeout} "},
	{"a call of the Go client", "of the last {bus.mostAnswers} requests"},
	{"… an attempt of a call", "at least {bus.leastAttempt} and at most {bus.mostAttempt}. While no generator answers any call: a third, at least {bus.leastDeaf} |"},
	{"… a pause after a refusal", "| {bus.firstRetryPause} to {bus.lastRetryPause}, and up to half"},
	{"… a late answer", "and later than {bus.leastHedgeDelay}. After the first answer this is {bus.firstDelay}, and less with each of the next {bus.fewAnswers}. The client then sends it every {bus.hedgePause}, at most {bus.mostHedges} times"},
	{"… how many hedges", "one for {bus.hedgeCost} requests. Up to {bus.savedHedges} can be saved"},
	{"… how many hedges", "After {bus.mostUnheard} without an answer to any call"},
	{"… how many hedges", "no answer within {bus.silence}, its"},
	{"… answers that come after", "for {bus.lateFor}, if"},
	{"… `Next`", "a request of {bus.manyCallers} callers or more is"},
	{"… `Next`", "a call within {bus.firstGlance} |"},
	{"a call of the Go client to all generators", "{bus/internal/wire.quiet} after the last answer"},
	{"IDs that a pool keeps", "{bus.DefaultLeastAhead} to {bus.DefaultMostAhead} (`bus.Ahead`). Snowflakes for {bus.DefaultMaxAge} "},
	{"requests of a bulk", "{bus.DefaultParallel} (`bus.Parallel`, at most {bus.LimitParallel}), each for {bus.DefaultBatch} IDs"},
	{"events of a durable consumer", "{bus.maxAckPending} by all processes together, and one by each process. After {bus.ackWait} without"},

	{"claims of strict tags", "{allocator.maxClaims} a generator, beside the refills |"},
	{"… time of a claim", "{allocator.firstClaim} or {allocator.claimFactor} times what the last one of the tag took. After each failure this doubles, beginning with {allocator.firstClaim}, up to {allocator.lastClaim} |"},
	{"… conflicts before requests are passed on", "| {allocator.passOnAfter}. The other generator has {allocator.passOnTime} to answer. For the next {allocator.passOnFor} requests are passed on at once. Each may take {allocator.passOnFactor} times as long as the one before it, at least {allocator.leastPassOn} |"},
	{"… alert `starved` of one tag", "| every {allocator.starvedAgain} "},
	{"… age of the record on which", "| {internal/fresh.For}. "},
	{"… claims wait while an operator's change", "| {bus/generator.maxHold} |"},

	{"page of a list", "{bus/generator.maxPage} entries"},
	{"… names of the tags in JetStream", "a list waits {bus/kvstore.namesWait} for the"},
	{"… records", "| {bus/kvstore.loadsAtOnce} are read at a time"},
	{"connections to MySQL", "{schema.maxConns} a generator, renewed every {schema.connLifetime}. A statement without an answer in {schema.ioTimeout} is"},
	{"claims (tags in MySQL)", "| {internal/fresh.For}. "},
	{"… wait for another generator with a lower range", "| {allocator.claimTurn}. "},
	{"… max_id after a database went backwards", "| {schema.raiseRoom} ranges above"},
	{"ranges of other generators", "| {allocator.maxHeard} |"},
	{"the ledger: how long", "| {bus/generator.ledgerPatience} |"},
	{"… check of its bucket", "every {bus/installation.ledgerCheck}. "},
	{"… check of its bucket", "ends after {bus/installation.ledgerTimeout} |"},
	{"… filling it", "{bus/installation.seedAtOnce} records at a time. The log says every {bus/installation.seedReport} "},
	{"tags that a generator never loaded", "| {allocator.maxUnknownAlerts} |"},
	{"tags that get no IDs", "| {bus/generator.mostStreaks}. It lists the {bus/generator.worstTags} that have been without IDs for longest. It forgets a tag for which nobody asks for {bus/generator.streakLasts} |"},

	{"tags that are loaded ahead", "{allocator.aheadAtOnce} at a time. The generator writes their list every {allocator.sweepEvery} "},
	{"a disk that hangs: a refill", "{allocator.markWait}, once"},
	{"… wait for the files", "| {allocator.recentWait} |"},
	{"… wait for the files", "| {snowflake.diskWait} |"},
	{"… wait for the files", "| {bus/installation.folderWait} |"},
	{"free room that a start needs", "| {bus/embedded.minRoom MiB} |"},
	{"secrets", "`--mysql-file`: {cmd/leaf.mostSecret KiB} |"},

	{"wait of a new generator for the clocks", "| {bus/internal/wire.quiet} after the last answer, at most {snowflake.askFor} |"},
	{"wait for JetStream", "{cmd/leaf.jetStreamPatience},"},
	{"check of the installation's record", "every {bus/kvstore.watchCheck}."},
	{"silence before the alert", "| {bus/generator.lostAfter}, in"},
	{"… lost generators", "at most {bus/generator.maxLost} are remembered, and {bus/generator.maxLostShown} are in the state of a generator. One without a worker is remembered for {bus/generator.lostFor} |"},
	{"generators that a change names as not heard", "at most {bus/generator.maxLost}, "},
	{"a generator stood still", "| after {bus/generator.tooOld} |"},
	{"a generator was cut off for more than 2 s", "| {bus/generator.floorsWait}, in which"},
	{"connections to ZooKeeper", "lasts {snowflake/zookeeper.sessionTimeout},"},
	{"a stop", "twice `--drain-timeout` and {cmd/leaf.stopSlack}."},

	{"check of the versions of NATS servers", "{bus/natsversion.askAtOnce} servers at a time, {bus/natsversion.askTimeout} each"},
	{"a connection of `leaf` to NATS that hangs", "every {cmd/leaf.connPingEvery}, at most {cmd/leaf.connPingsOut} without an answer. A write ends after {cmd/leaf.connWriteTimeout} |"},
	{"… a server that sends no greeting", "it has {bus/natsversion.greetingPatience}. Then"},
	{"… a server that is slow to greet", "{bus/natsversion.slowTries} tries at the first connect"},
	{"… heartbeats that do not come back", "again after {bus/generator.firstReconnect}, then after twice as long, up to {bus/generator.lastReconnect} |"},
	{"an embedded server: health check", "every {bus/embedded.checkEvery} "},
	{"… no leader", "after {bus/embedded.electionPatience},"},
	{"… a check that does not end", "after {bus/embedded.slowCheck} "},
	{"… free room that it needs to be ready", "| {bus/embedded.minRoom MiB} |"},
	{"… a client, or a server of the cluster, that hangs", "a ping every {bus/embedded.pingEvery},"},
	{"… a stream that it copies", "| {bus/embedded.maxCatchup MiB} under way"},
	{"… age of a generator that ends because of a failed write", "{bus/embedded.firstRestart} "},
	{"… it does not work, and the generator drains", "{bus/generator.degradedDrain} "},

	{"administrative requests", "{bus/generator.maxAdmin} a generator "},
	{"how long the sender of an administrative request waits", "{bus.DefaultTimeout}, or"},
	{"how long the sender of an administrative request waits", "at most {bus/internal/wire.MaxAdminTimeout}."},
	{"work on an administrative request", "at most {bus/generator.maxAnswerTime} "},
	{"… how the generator knows the age", "For {bus/generator.settles} after a pause"},
	{"`leaf tag advance`", "{cmd/leaf.advanceAtOnce} tags at a time. The first {cmd/leaf.mostFailures} failures"},
	{"`leaf tag apply`", "{cmd/leaf.applyAtOnce} tags at a time. A file of at most {cmd/leaf.mostTagFile MiB}. The first {cmd/leaf.mostFailures} failures"},
	{"`leaf nodes --wait-redundant`", "{cmd/leaf.waitForHelp} while too few"},
	{"… what it waits for", "silent for {cmd/leaf.replicaSilent}. The leader of a stream has {cmd/leaf.leaderAnswers} to answer. Nothing may change for {cmd/leaf.settleFor}, or for {cmd/leaf.startsFor} if"},
	{"`leaf doctor`", "Generators have {cmd/leaf.clockAnswers} to"},
	{"`leaf doctor`", "at most {cmd/leaf.mostVarz MiB}. A finding names {cmd/leaf.mostNamed} tags |"},
	{"… its warnings", "a limit that is {cmd/leaf.fullPercent} % used, less than {cmd/leaf.littleRoom MiB} on the disk of the data folder, a clock that is {cmd/leaf.clockWarning} off |"},
	{"`leaf bench`", "{cmd/leaf.mostCallers} callers"},
	{"an audit", "| remembers the latest {bus/audit.mostTenures} holders of a worker, and names {bus/audit.mostContradictions} contradictions of"},
	{"… its waits", "again after {bus/audit.replicaLag}. If no event comes for {bus/audit.readStall}, it fails"},
	{"… its waits", "can answer for {bus/audit.askAgain} |"},
	{"`leaf.admin.buffers`", "1,000 tags a page, or {bus/generator.maxNamed} named |"},
	{"`leaf.admin.claims`", "| {bus/generator.maxClaimsPage} tags a page, {bus/generator.maxClaimsNamed} named. A generator works on one request for up to {bus/internal/wire.MaxAdminTimeout} |"},

	{"events that wait", "{bus/generator.eventQueue}. The last quarter"},
	{"events that the stream keeps", "`--events-max-bytes`, {bus/kvstore.DefaultEventsMaxBytes MiB}, and"},
	{"events that the stream keeps", "at {bus/kvstore.refillBytes} bytes each"},
	{"HTTP", "Header of a request {bus/gateway.maxHeader KiB} in"},
	{"HTTP", "body {bus/gateway.maxBody KiB} in"},
	{"dashboard", "{bus/gateway.defaultPage} tags a page. {bus/gateway.maxSearches} pages of"},
	{"… tags that end soonest", "names {bus/generator.endingTags}. The page looks up {bus/gateway.maxEnding} of"},
	{"… what it shows", "the latest {bus/gateway.maxShown} events, {bus/gateway.maxMembers} alerts of each cause, and the {bus/gateway.maxMembers} alerts that ended last"},
	{"audits in the dashboard", "up to {bus/gateway.auditTimeout}. Its answer has {bus/gateway.maxAudited} tags, {bus/gateway.maxAudited} workers and {bus/gateway.maxContradictions} contradictions"},
}

// The numbers of docs/limits.md are those of the code.
func TestLimitsAreThoseOfTheCode(t *testing.T) {
	doc := topFile(t, "docs/limits.md")
	packages := make(map[string]*types.Scope)
	value := regexp.MustCompile(`\{([a-z/]+)\.(\w+)(?: ([KM]iB))?\}`)
	for _, l := range limits {
		want := value.ReplaceAllStringFunc(l.text, func(text string) string {
			m := value.FindStringSubmatch(text)
			scope := packages[m[1]]
			if scope == nil {
				scope = constants(t, m[1])
				packages[m[1]] = scope
			}
			c, ok := scope.Lookup(m[2]).(*types.Const)
			if !ok {
				t.Fatalf("package %s has no constant %s", m[1], m[2])
			}
			return inTheDoc(c, m[3])
		})
		found := false
		for line := range strings.Lines(doc) {
			found = found || strings.HasPrefix(line, "| "+l.row) && strings.Contains(line, want)
		}
		if !found {
			t.Errorf("docs/limits.md does not say of %s: %q", l.row, want)
		}
	}
}

// inTheDoc is a constant as the document has it.
func inTheDoc(c *types.Const, unit string) string {
	n, _ := constant.Int64Val(constant.ToInt(c.Val()))
	if c.Type().String() == "time.Duration" {
		const day = 24 * time.Hour
		switch d := time.Duration(n); {
		case d >= 2*day && d%day == 0:
			return fmt.Sprintf("%d days", d/day)
		case d >= 2*time.Minute:
			return fmt.Sprintf("%g minutes", d.Minutes())
		case d < time.Second:
			return fmt.Sprintf("%d ms", d.Milliseconds())
		default:
			return fmt.Sprintf("%g s", d.Seconds())
		}
	}
	if unit == "KiB" {
		return fmt.Sprintf("%d KiB", n>>10)
	}
	if unit == "MiB" {
		return fmt.Sprintf("%d MiB", n>>20)
	}
	digits := fmt.Sprint(n)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// onlyTime imports the one package that constants of limits need, as far as they need it.
type onlyTime struct{}

func (onlyTime) Import(path string) (*types.Package, error) {
	if path != "time" {
		return nil, fmt.Errorf("%s is not needed", path)
	}
	const text = `package time
type Duration int64
const (
	Millisecond Duration = 1000000
	Second               = 1000 * Millisecond
	Minute               = 60 * Second
	Hour                 = 60 * Minute
)`
	set := token.NewFileSet()
	f, err := parser.ParseFile(set, "", text, 0)
	if err != nil {
		return nil, err
	}
	return new(types.Config).Check("time", set, []*ast.File{f}, nil)
}

// constants is what a package declares. Only its constants are of use.
func constants(t *testing.T, dir string) *types.Scope {
	t.Helper()
	names, err := filepath.Glob(filepath.Join("..", dir, "*.go"))
	if err != nil || len(names) == 0 {
		t.Fatalf("package %s: %v", dir, err)
	}
	set := token.NewFileSet()
	var files []*ast.File
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(set, name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	config := types.Config{
		Importer: onlyTime{}, IgnoreFuncBodies: true,
		Error: func(error) {}, // what is imported besides is missing
	}
	pkg, _ := config.Check(dir, set, files, nil)
	return pkg.Scope()
}
