// Package admin is for operators: the requests of leaf.admin and their replies, what generators say
// of themselves, and a [Client] that asks them.
//
// Requests change tags and workers, or list them. A generator answers each, except those that ask
// all generators for their state or for what they have in memory. A change is sent again only after
// the answer that nothing was done: a person should check whether one that was not confirmed
// happened. Errors are [bus.Error] with a [bus.Reason], or those of NATS.
package admin
