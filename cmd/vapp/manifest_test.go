package main

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"vapp.dev/internal/goldentest"
)

// TestKustomize compares the kustomize base with `vapp manifest`, and the overlay's patch with what its profile's plan says.
func TestKustomize(t *testing.T) {
	const folder = "../../deploy/kustomize/"
	t.Setenv("HF_HUB_CACHE", t.TempDir()) // the catalogue plans both, with or without weights
	manifests := func(profile string) string {
		var out bytes.Buffer
		root := newRoot()
		root.SetOut(&out)
		root.SetArgs([]string{"manifest", folder + profile})
		if err := root.Execute(); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	base := "# What `vapp manifest profile.cue` writes, without the ConfigMap, which the kustomization makes, and the image's tag.\n"
	for _, doc := range strings.Split(strings.TrimPrefix(manifests("base/profile.cue"), "---\n"), "\n---\n") {
		if !strings.Contains(doc, "\nkind: ConfigMap\n") {
			base += "---\n" + strings.TrimSuffix(doc, "\n") + "\n"
		}
	}
	base = regexp.MustCompile(`(?m)^ *app\.kubernetes\.io/version: .*\n`).ReplaceAllString(base, "")
	base = regexp.MustCompile(`(?m)( image: vapp):.*$`).ReplaceAllString(base, "$1")
	goldentest.Compare(t, folder+"base/server.yaml", base)

	text := manifests("example/profile.cue")
	field := func(pattern string) string {
		m := regexp.MustCompile(pattern).FindStringSubmatch(text)
		if m == nil {
			t.Fatalf("the manifests have no %s:\n%s", pattern, text)
		}
		return m[1]
	}
	goldentest.Compare(t, folder+"example/plan.yaml", fmt.Sprintf(`apiVersion: apps/v1
kind: Deployment
metadata: {name: vapp}
spec:
  template:
    metadata:
      annotations:
        vapp.dev/plan: %[1]s
        vapp.dev/planned-memory: "%[2]s"
    spec:
      initContainers:
        - name: pull
          resources: &resources
            requests: {cpu: "%[3]s", memory: "%[4]s"}
            limits: {cpu: "%[3]s", memory: "%[4]s"}
      containers:
        - name: vapp
          resources: *resources
`, field(`vapp\.dev/plan: (\w+)`), field(`planned-memory: "(\d+)"`), field(`cpu: "(\d+)"`), field(` memory: "(\d+)"`)))
}
