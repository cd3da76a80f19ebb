// Package gateway is a generator's HTTP server: the API of Meituan Leaf, the same with IDs as
// strings (/v1), a dashboard for operators, metrics for Prometheus, and health checks.
//
// IDs come from the generator in the same process. The dashboard asks the other generators over the
// bus. Nothing can be changed over HTTP: administration needs the bus.
package gateway
