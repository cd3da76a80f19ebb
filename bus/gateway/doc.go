// Package gateway is a generator's HTTP face: the API of Meituan Leaf, a dashboard
// for operators, metrics for Prometheus, and health checks.
//
// IDs come from the generator in the same process. What the dashboard shows of the
// others is asked over the bus. Nothing can be changed here: administration is
// for the bus alone.
package gateway
