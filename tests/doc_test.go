// Package tests runs the program leaf as its users do: real processes on real
// ports and folders, killed, stopped and restored, seen through NATS alone.
package tests
