// Package bus is what a service imports that gets its IDs over NATS: the client, the
// subjects, the form of requests and replies, and the errors.
//
// [Client] asks generators. [Client.Next] returns one ID, [Client.Pool] keeps IDs ready, and
// [Client.Take] returns a batch. A program that speaks plain NATS finds its subjects and forms
// here, too. Package admin, below this one, is for operators, and package events follows what
// generators publish.
//
// IDs are int64. Many are above 2^53, and JavaScript cannot read such numbers exactly. Use [ID] in JSON: it is encoded
// as a string.
//
// A service that imports this package links no NATS server and no database. The generator is
// in package generator, below this one.
package bus
