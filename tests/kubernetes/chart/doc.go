// Package chart tests the Helm chart and the kustomize base of the folder deploy: lint, rendered
// goldens, the schema of the values, and that chart and `vapp manifest` give the same objects. It
// uses the binary as a process and does not know its packages. Start reading at TestGolden.
package chart
