package chart

import (
	"fmt"
	"sort"
	"strings"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"sigs.k8s.io/yaml"
)

// Release is where a chart is rendered for.
type Release struct{ Name, Namespace string }

// Render returns the manifests of the chart in a folder as one YAML text, by the Helm library. values
// are the texts of values files; a later one replaces fields of those before it.
func Render(folder string, r Release, values ...[]byte) (string, error) {
	c, err := loader.Load(folder)
	if err != nil {
		return "", err
	}
	given, err := merge(values)
	if err != nil {
		return "", err
	}
	all, err := chartutil.ToRenderValues(c, given, chartutil.ReleaseOptions{Name: r.Name, Namespace: r.Namespace, Revision: 1, IsInstall: true}, chartutil.DefaultCapabilities)
	if err != nil {
		return "", err
	}
	files, err := engine.Render(c, all)
	if err != nil {
		return "", err
	}
	var names []string
	for name, text := range files {
		if strings.HasSuffix(name, ".yaml") && strings.TrimSpace(text) != "" {
			names = append(names, name)
		}
	}
	sort.Strings(names)
	var b strings.Builder
	for _, n := range names {
		fmt.Fprintf(&b, "---\n%s\n", strings.TrimSpace(files[n]))
	}
	return b.String(), nil
}

// merge returns the values of texts; a later one replaces fields of those before it.
func merge(texts [][]byte) (map[string]any, error) {
	given := map[string]any{}
	for _, t := range texts {
		file := map[string]any{}
		if err := yaml.Unmarshal(t, &file); err != nil {
			return nil, err
		}
		given = chartutil.CoalesceTables(file, given)
	}
	return given, nil
}

// Objects parses the documents of a YAML text by kind and name.
func Objects(text string) (map[string]map[string]any, error) {
	out := map[string]map[string]any{}
	for _, doc := range strings.Split("\n"+text, "\n---\n") {
		var o map[string]any
		if err := yaml.Unmarshal([]byte(doc), &o); err != nil {
			return nil, fmt.Errorf("%w in:\n%s", err, doc)
		}
		if o == nil {
			continue
		}
		meta, _ := o["metadata"].(map[string]any)
		key := fmt.Sprintf("%v %v", o["kind"], meta["name"])
		if _, twice := out[key]; twice {
			return nil, fmt.Errorf("%s twice", key)
		}
		out[key] = o
	}
	return out, nil
}
