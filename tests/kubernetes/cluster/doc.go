// Package cluster tests vapp on a real control plane: the chart and `vapp manifest` are admitted,
// pods serve through a Service, changes roll without a lost request. It uses the binary as a
// process, and must not know its packages. `make kubernetes` runs it, as root; a run takes minutes.
// Start reading at TestMain in cluster_test.go.
package cluster
