// Package chart tests the Helm chart and the kustomize base of the folder deploy: lint, rendered
// objects, the schema of the values, and that the chart and `vapp manifest` make the same objects.
// It uses the binary as a process and must not know its packages. Start reading at
// TestChartIsManifest.
package chart
