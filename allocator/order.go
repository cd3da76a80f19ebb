package allocator

import (
	"fmt"
	"strings"

	"github.com/leafbus/leafbus/allocator/opaque"
	"github.com/leafbus/leafbus/bus/idspace"
)

// Order says in which order the IDs of a tag are handed out. It is chosen when the tag is created,
// for life: the record has it, and a deletion keeps it. Otherwise a generator that is cut off could
// still hand out IDs from memory.
//
// An opaque tag has an order of its own, by [OpaqueOrder]: generators reserve its numbers as those
// of a tag of trend order, and each number passes through a permutation of a domain before a caller
// gets it.
type Order string

// The orders.
const (
	// Trend is the order of IDs that generators hold in memory: those of one generator increase,
	// and those of several trend upwards.
	Trend Order = ""
	// Strict is the order of claims: if a request is sent after the answer to another one has
	// arrived, all its IDs are above all IDs of that answer, whichever generators answer. See
	// [Allocator.claim].
	Strict Order = "strict"
)

// ParseOrder reads trend, strict, or nothing, which is trend. The error matches
// [idspace.ErrBadValue].
func ParseOrder(text string) (Order, error) {
	switch text {
	case "", "trend":
		return Trend, nil
	case string(Strict):
		return Strict, nil
	}
	return Trend, fmt.Errorf("%w: order %s: want trend or strict", idspace.ErrBadValue, idspace.Quote(text))
}

// NewOrder is the order of a new tag, of what an operator names: trend, strict or nothing, and the
// domain of an opaque tag. The error matches [idspace.ErrBadValue].
func NewOrder(order, domain string) (Order, error) {
	o, err := ParseOrder(order)
	if err != nil || domain == "" {
		return o, err
	}
	if o == Strict {
		return o, fmt.Errorf("%w: a tag is strict or opaque: the IDs of an opaque tag are in no order", idspace.ErrBadValue)
	}
	d, err := opaque.ParseDomain(domain)
	if err != nil {
		return o, fmt.Errorf("%w: opaque: %v", idspace.ErrBadValue, err)
	}
	return OpaqueOrder(d), nil
}

// opaquePrefix comes before the domain in the order of an opaque tag. Versions that know no opaque
// tags take such an order as damage, and so hand out no numbers in the place of IDs.
const opaquePrefix = "opaque-"

// OpaqueOrder is the order of an opaque tag with this domain.
func OpaqueOrder(d opaque.Domain) Order { return Order(opaquePrefix + string(d)) }

// Domain returns the domain of an opaque tag; empty: the tag is not opaque.
func (o Order) Domain() opaque.Domain {
	d, ok := strings.CutPrefix(string(o), opaquePrefix)
	if !ok {
		return ""
	}
	domain, err := opaque.ParseDomain(d)
	if err != nil {
		return ""
	}
	return domain
}

// Known reports whether this version knows the order.
func (o Order) Known() bool { return o == Trend || o == Strict || o.Domain() != "" }

// limit is the largest number of an opaque tag, as [Rules.Limit] has it.
func (o Order) limit() int64 {
	switch d := o.Domain(); d {
	case "", opaque.Bits63: // the largest number of any tag is a little less than this domain's
		return 0
	default:
		return d.Last()
	}
}

// EndsWithDomain reports whether the limit of an opaque tag is that of its domain. All other tags
// fit.
func (t Tag) EndsWithDomain() bool { return t.Order.Domain() == "" || t.Limit == t.Order.limit() }

// String returns trend or strict. The order of an opaque tag is trend.
func (o Order) String() string {
	if o == Strict {
		return string(o)
	}
	return "trend"
}

// kind is what a tag of this order is called.
func (o Order) kind() string {
	if d := o.Domain(); d != "" {
		return fmt.Sprintf("an opaque tag with the domain %s", d)
	}
	return fmt.Sprintf("a tag of %v order", o)
}

// CheckStepOf is [CheckStep] for a tag of this order. A strict tag has no segments, so its step is
// 0.
func CheckStepOf(o Order, step, maxStep int64) error {
	switch {
	case o != Strict:
		return CheckStep(step, maxStep)
	case step != 0:
		return fmt.Errorf("%w: a strict tag has no step: each write takes as many IDs as the waiting requests need",
			idspace.ErrBadValue)
	}
	return nil
}

// KnowStrict notes that a tag is strict, by the answer of another generator.
func (m *memory) KnowStrict(tag string) { m.strictNames.Store(strings.Clone(tag), true) }

// Order returns the order of a tag, as far as it is known: a tag that was never loaded counts as
// one of trend order. The order of a tag whose IDs were handed out here is known for good, because
// an answer with them says it after the tag may have left memory.
func (m *memory) Order(tag string) Order {
	if _, ok := m.strictNames.Load(tag); ok {
		return Strict
	}
	return Trend
}
