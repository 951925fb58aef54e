package chart

import (
	"testing"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/lint"
	"sigs.k8s.io/yaml"
)

func TestLoad(t *testing.T) {
	if _, err := loader.Load("../../../deploy/chart"); err != nil {
		t.Fatal(err)
	}
	_ = chartutil.ToRenderValues
	_ = engine.Engine{}
	_ = lint.All
	_ = yaml.Marshal
}
