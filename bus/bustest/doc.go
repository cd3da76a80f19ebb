// Package bustest starts a generator inside a test, so that a program that
// takes IDs is tested against what it will meet: a NATS server with JetStream, and
// a generator that keeps its state there, wired as by `leaf serve`. Nothing is mocked,
// so what a test sees, also while the generator is away, is what happens in production.
//
//	func TestOrders(t *testing.T) {
//		ids := bustest.Start(t, "order")
//		orders := NewOrders(ids.Client())
//		…
//	}
//
// A test may hand over the IDs that the program took: [Generator.Audit] fails it if one was taken
// twice, or never claimed.
//
// It links a NATS server: import it from tests only.
package bustest
