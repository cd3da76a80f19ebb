// Package events is for those who follow what generators publish: [Follow] yields [Event] values
// from the stream in JetStream, and each kind of event has a type for its body. docs/events.md
// lists them.
package events
