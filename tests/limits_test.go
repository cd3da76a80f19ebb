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
	{"… layout", "in a new installation at least {snowflake.leastLeft} from its first start"},
	{"IDs in one request", "{allocator.DefaultMaxBatch} "},
	{"requests that wait", "{allocator.DefaultMaxWaiting} of each kind"},
	{"requests that wait", "`--max-wait`, {allocator.DefaultMaxWait}"},
	{"quota of a tag, and its burst", "| 1 to {allocator.LimitQuota} |"},
	{"time that IDs in memory should last", "`--outlast`, {allocator.DefaultOutlast}, or that of the tag; 1 s to {allocator.LimitOutlast} |"},
	{"step of a tag", "`--max-step`, {allocator.DefaultMaxStep},"},
	{"time that requests wait for a generator with a joined NATS", "| {bus/generator.usuallyLate}, if at least {bus/generator.fewRequests} were read meanwhile; adapted down to {bus/generator.leastLate} in an overload, so that the answers to a backlog take {bus/generator.shortBacklog} to {bus/generator.longBacklog} |"},
	{"… how it measures that", "a probe every {bus/generator.probeEvery}, while it reads at least {bus/generator.busy} requests"},
	{"body of a request", "{bus.maxRequest KiB}"},
	{"a call of the Go client", "without a deadline {bus.DefaultTimeout} "},
	{"a call of the Go client", "at least {bus.leastAttempt} and at most {bus.mostAttempt} (while no generator answers any call: a third, at least {bus.leastDeaf}); pauses after a refusal {bus.firstRetryPause} to {bus.lastRetryPause}, and up to half"},
	{"a call of the Go client", "of the last {bus.mostAnswers} requests"},
	{"… a late answer", "and than {bus.leastHedgeDelay} (after the first answer {bus.firstDelay}, and less with each of the next {bus.fewAnswers}), the request is sent again, and then every {bus.hedgePause}, at most {bus.mostHedges} times"},
	{"… a late answer", "{bus.hedgeCost} requests pay for one of these, up to {bus.savedHedges} can be saved"},
	{"… a late answer", "After {bus.mostUnheard} without an answer to any call"},
	{"… a late answer", "without an answer for {bus.silence} |"},
	{"… answers that come after", "for {bus.lateFor}, if"},
	{"… `Next`", "a request of {bus.manyCallers} callers or more is"},
	{"… `Next`", "a call within {bus.firstGlance} |"},
	{"a call of the Go client to all generators", "{bus/internal/wire.quiet} after the last answer"},
	{"IDs that a pool keeps", "{bus.DefaultLeastAhead} to {bus.DefaultMostAhead} (`bus.Ahead`), snowflakes for {bus.DefaultMaxAge} "},
	{"requests of a bulk", "{bus.DefaultParallel} (`bus.Parallel`, at most {bus.LimitParallel};"},
	{"requests of a bulk", "each for {bus.DefaultBatch} IDs"},
	{"page of a list", "{bus/generator.maxPage} entries"},
	{"… names of the tags in JetStream", "A list waits {bus/kvstore.namesWait} for those"},
	{"… records", "| {bus/kvstore.loadsAtOnce} are read at a time"},
	{"wait of a new node's start", "{bus/internal/wire.quiet} after the last answer, at most {snowflake.askFor}"},
	{"refills under way", "{allocator.maxRefills} a generator, one a tag; {allocator.attemptTimeout} each; of tags whose row is locked {allocator.maxLocked},"},
	{"a request over HTTP, while its generator starts", "| waits for {bus/generator.startPatience}; "},
	{"requests whose IDs another generator has", "else after {allocator.slowAfter}, of a strict tag after {allocator.slowStrict} |"},
	{"… time and tries", "up to {bus/generator.borrowWithin} after the request came; {bus/generator.offerWait} for an offer, {bus/generator.borrowWait} for the IDs; {bus/generator.borrowTries} tries"},
	{"… at the same time", "| {bus/generator.maxBorrowing} of each kind; "},
	{"… an answer counts for the requests", "| {bus/generator.offerLasts} |"},
	{"claims (tags in MySQL)", "| {internal/fresh.For}; "},
	{"claims of strict tags", "{allocator.maxClaims} a generator, beside the refills; {allocator.firstClaim} or {allocator.claimFactor} times what the last one of the tag took, after each failure twice {allocator.firstClaim}, up to {allocator.lastClaim} |"},
	{"… conflicts before requests are passed on", "| {allocator.passOnAfter}; it has {allocator.passOnTime} to answer; for {allocator.passOnFor} further requests are passed on at once, and it has {allocator.passOnFactor} times as long as for the one before, at least {allocator.leastPassOn}"},
	{"… alert `starved` of one tag", "| every {allocator.starvedAgain} "},
	{"… age of the record on which", "| {internal/fresh.For}; "},
	{"… kept back while an operator's change", "| {bus/generator.maxHold} |"},
	{"… wait for another generator whose range", "| {allocator.claimTurn}; "},
	{"… max_id after a database went backwards", "| {schema.raiseRoom} ranges above"},
	{"ranges of other generators", "| {allocator.maxHeard} |"},
	{"the ledger: time", "| {bus/generator.ledgerPatience} |"},
	{"… look at its bucket", "every {bus/installation.ledgerCheck}, "},
	{"… look at its bucket", "ends after {bus/installation.ledgerTimeout} |"},
	{"… filling it", "{bus/installation.seedAtOnce} records at a time; the log says each {bus/installation.seedReport} "},
	{"free room that a start needs", "| {bus/embedded.minRoom MiB} |"},
	{"free room that an embedded server needs", "| {bus/embedded.minRoom MiB} |"},
	{"health check of the embedded server", "every {bus/embedded.checkEvery} "},
	{"… no leader", "after {bus/embedded.electionPatience},"},
	{"… a check that does not end", "after {bus/embedded.slowCheck} "},
	{"age of a generator that ends because of a failed write", "{bus/embedded.firstRestart} "},
	{"drain of a generator whose embedded server", "{bus/generator.degradedDrain} "},
	{"administrative requests", "{bus/generator.maxAdmin} a generator "},
	{"how long the sender of an administrative request waits", "{bus.DefaultTimeout}, or"},
	{"how long the sender of an administrative request waits", "at most {bus/internal/wire.MaxAdminTimeout}."},
	{"work on an administrative request", "at most {bus/generator.maxAnswerTime} "},
	{"… how the generator knows the age", "For {bus/generator.settles} after a pause"},
	{"a connection of `leaf` to NATS that hangs", "every {cmd/leaf.connPingEvery}, at most {cmd/leaf.connPingsOut} without an answer; a write ends after {cmd/leaf.connWriteTimeout} |"},
	{"… a server that does not greet", "it has {bus/natsversion.greetingPatience}, then"},
	{"… heartbeats that do not come back", "again after {bus/generator.firstReconnect}, then after twice as long, up to {bus/generator.lastReconnect} |"},
	{"… a client or a server of the cluster that hangs", "a ping every {bus/embedded.pingEvery},"},
	{"… a stream that an embedded server copies", "| {bus/embedded.maxCatchup MiB} under way"},
	{"standstill of a generator", "| {bus/generator.tooOld} |"},
	{"`leaf nodes --wait-redundant`", "{cmd/leaf.waitForHelp} while too few"},
	{"`leaf nodes --wait-redundant`", "silent for {cmd/leaf.replicaSilent}."},
	{"`leaf nodes --wait-redundant`", "change for {cmd/leaf.settleFor}, or for {cmd/leaf.startsFor} if"},
	{"`leaf nodes --wait-redundant`", "has {cmd/leaf.leaderAnswers} to answer"},
	{"question of a generator that was cut off for more than 2 s", "| {bus/generator.floorsWait}, in which"},
	{"generators that a change names as not heard", "at most {bus/generator.maxLost}, "},
	{"silence before the alert", "| {bus/generator.lostAfter}, in"},
	{"… lost generators", "at most {bus/generator.maxLost} are remembered, and {bus/generator.maxLostShown} are in the state of a generator; one without a worker for {bus/generator.lostFor} |"},
	{"events that wait", "{bus/generator.eventQueue}, the last quarter"},
	{"events that the stream keeps", "`--events-max-bytes`, {bus/kvstore.DefaultEventsMaxBytes MiB}, and"},
	{"events that the stream keeps", "at {bus/kvstore.refillBytes} bytes each"},
	{"tags without IDs that a generator remembers", "| {bus/generator.mostStreaks}; it lists the {bus/generator.worstTags} that have been without IDs for longest. One for which nobody asks for {bus/generator.streakLasts} is"},
	{"`leaf doctor`", "a limit that is {cmd/leaf.fullPercent} % used, less than {cmd/leaf.littleRoom MiB} on the disk of the data folder, and a clock that is {cmd/leaf.clockWarning} off are warnings; the generators have {cmd/leaf.clockAnswers} to"},
	{"`leaf doctor`", "at most {cmd/leaf.mostVarz MiB}; a finding names {cmd/leaf.mostNamed} tags |"},
	{"tags that a generator never loaded", "{allocator.maxUnknownAlerts}"},
	{"events of a durable consumer", "{bus.maxAckPending} by all together, one a process; {bus.ackWait} each"},
	{"an audit", "| {bus/audit.mostTenures} holders a worker are remembered, the latest; {bus/audit.mostContradictions} contradictions of"},
	{"an audit", "again after {bus/audit.replicaLag}; if no event comes for {bus/audit.readStall} the"},
	{"an audit", "is repeated for {bus/audit.askAgain} |"},
	{"`leaf.admin.claims`", "| {bus/generator.maxClaimsPage} tags a page, {bus/generator.maxClaimsNamed} named; a generator works on one for up to {bus/internal/wire.MaxAdminTimeout} |"},
	{"audits in the dashboard", "up to {bus/gateway.auditTimeout}; its answer has {bus/gateway.maxAudited} tags, {bus/gateway.maxAudited} workers and {bus/gateway.maxContradictions} contradictions"},
	{"`leaf bench`", "{cmd/leaf.mostCallers} callers"},
	{"… the key of a tag", "within {bus/kvstore.keyTimeout}, and once; the log names the first {bus/kvstore.maxLostLogged} tags"},
	{"… IDs that one request reveals", "| {bus.MostRevealed} |"},
	{"`leaf tag advance`", "{cmd/leaf.advanceAtOnce} tags at a time; of failures the first {cmd/leaf.mostFailures} "},
	{"secrets", "`--mysql-file`: {cmd/leaf.mostSecret KiB} |"},
	{"`leaf tag apply`", "{cmd/leaf.applyAtOnce} tags at a time; a file of at most {cmd/leaf.mostTagFile MiB}; of failures the first {cmd/leaf.mostFailures} "},
	{"description", "{allocator.MaxDescription} characters"},
	{"HTTP", "header of a request {bus/gateway.maxHeader KiB} "},
	{"HTTP", "body {bus/gateway.maxBody KiB} "},
	{"dashboard", "{bus/gateway.defaultPage} tags a page"},
	{"dashboard", "{bus/gateway.maxSearches} pages are read at a time; the latest {bus/gateway.maxShown} events; {bus/gateway.maxMembers} alerts of each cause"},
	{"connections to MySQL", "{schema.maxConns} a generator, renewed every {schema.connLifetime};"},
	{"connections to MySQL", "in {schema.ioTimeout} is given up"},
	{"connections to ZooKeeper", "lasts {snowflake/zookeeper.sessionTimeout},"},
	{"wait for JetStream", "{bus/installation.jetStreamPatience},"},
	{"check of the installation's record", "every {bus/kvstore.watchCheck};"},
	{"a disk that hangs: wait of a refill", "{allocator.markWait}, once"},
	{"… wait for the files", "| {allocator.recentWait} |"},
	{"… wait for the files", "| {snowflake.diskWait} |"},
	{"… wait for the files", "| {bus/installation.folderWait} |"},
	{"a stop", "twice `--drain-timeout` and {cmd/leaf.stopSlack}."},
	{"questions for the versions", "{bus/natsversion.askAtOnce} at a time, {bus/natsversion.askTimeout} each"},
	{"tags that are loaded ahead", "{allocator.aheadAtOnce} at a time; noted every {allocator.sweepEvery} "},
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
