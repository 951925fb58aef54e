package chart

import (
	"bytes"
	"context"
	"errors"
	"time"

	"helm.sh/helm/v3/pkg/action"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/storage/driver"
	"k8s.io/cli-runtime/pkg/genericclioptions"
)

// edit changes manifests after they were rendered. It is a post-renderer of Helm.
type edit func(string) string

func (e edit) Run(in *bytes.Buffer) (*bytes.Buffer, error) {
	return bytes.NewBufferString(e(in.String())), nil
}

// Upgrade installs or upgrades a release of the chart in a folder, as `helm upgrade --install --wait --timeout` does, and
// returns when its objects are ready, or an error after the time. post may change the manifests; nil: it does not.
func Upgrade(ctx context.Context, folder, kubeconfig string, r Release, within time.Duration, post func(string) string, values ...[]byte) error {
	c, err := loader.Load(folder)
	if err != nil {
		return err
	}
	given, err := merge(values)
	if err != nil {
		return err
	}
	flags := genericclioptions.NewConfigFlags(false)
	flags.KubeConfig, flags.Namespace = &kubeconfig, &r.Namespace
	var cfg action.Configuration
	if err := cfg.Init(flags, r.Namespace, "secret", func(string, ...any) {}); err != nil {
		return err
	}
	if post == nil {
		post = func(text string) string { return text }
	}
	switch _, err := cfg.Releases.Last(r.Name); {
	case errors.Is(err, driver.ErrReleaseNotFound):
		install := action.NewInstall(&cfg)
		install.ReleaseName, install.Namespace, install.Wait, install.Timeout, install.PostRenderer = r.Name, r.Namespace, true, within, edit(post)
		_, err = install.RunWithContext(ctx, c, given)
		return err
	case err != nil:
		return err
	}
	upgrade := action.NewUpgrade(&cfg)
	upgrade.Namespace, upgrade.Wait, upgrade.Timeout, upgrade.PostRenderer = r.Namespace, true, within, edit(post)
	_, err = upgrade.RunWithContext(ctx, r.Name, c, given)
	return err
}
