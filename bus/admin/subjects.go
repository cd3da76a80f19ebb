package admin

import "github.com/leafbus/leafbus/internal/wire"

// The subjects of administrative requests.
const (
	SubjectTagsList    = "leaf.admin.tags.list"
	SubjectTagsGet     = "leaf.admin.tags.get"
	SubjectTagsCreate  = "leaf.admin.tags.create"
	SubjectTagsUpdate  = "leaf.admin.tags.update"
	SubjectTagsAdvance = "leaf.admin.tags.advance"
	SubjectTagsDelete  = "leaf.admin.tags.delete"
	SubjectTagsReveal  = "leaf.admin.tags.reveal"
	SubjectTagsMissing = "leaf.admin.tags.missing"
	SubjectTagsEndLoss = "leaf.admin.tags.end_loss"

	SubjectWorkersList    = "leaf.admin.workers.list"
	SubjectWorkersRelease = "leaf.admin.workers.release"

	SubjectNodesForget = "leaf.admin.nodes.forget"

	SubjectBuffers = "leaf.admin.buffers" // every generator answers
	SubjectKnown   = "leaf.admin.known"   // every generator answers
)

// statsSubject is where micro services are asked for their statistics: every generator answers with
// its state.
const statsSubject = "$SRV.STATS." + wire.ServiceLeaf
