package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"vapp.dev/appliance"
	"vapp.dev/tools/kubernetes"
	"vapp.dev/tools/lock"
)

// imageName is the default repository of the image, without a registry.
const imageName = "vapp"

// manifestFlags are the choices of the cluster.
type manifestFlags struct {
	target target
	kubernetes.Options
	values bool
	out    string
}

func newManifest() *cobra.Command {
	var m manifestFlags
	c := &cobra.Command{
		Use:   "manifest PROFILE",
		Short: "Write Kubernetes manifests, or values of the chart, from the plan",
		Long: `Manifest writes plain Kubernetes manifests for a profile, or with --values the
values for the Helm chart in deploy/chart, which make the same objects. What a
pod needs comes from the plan: its memory to the byte, cores, a GPU and the
nodes that have it, /dev/shm between ranks, the time that loading may take. The
plan's digest is an annotation of the pods: a change that needs another engine
rolls them, and a change of live fields reaches them through the ConfigMap.

The plan is for the profile's target, or for --gpu or --memory: the machine is
then the container. With memory.kvCache the limit is what the plan takes; with
memory.utilization, a share of the machine, it is the machine.

On the way into a cluster these are refused: a plan that does not fit, a profile
without a machine, API keys in clear text, a profile that imports other files,
a model in files without a claim. "vapp diff --k8s" compares manifests in a
repository with the plan.`,
		Example: `  vapp manifest profiles/code.cue --gpu l4 | kubectl apply -f -
  vapp manifest profiles/code.cue --values -o values.yaml
  helm upgrade --install code deploy/chart -f values.yaml`,
		Args: needArgs(1, 1, "a profile"),
		RunE: func(c *cobra.Command, args []string) error {
			v, err := m.of(c, args[0])
			if err != nil {
				return err
			}
			write := v.Manifests
			if m.values {
				write = v.YAML
			}
			text, err := write()
			if err != nil {
				return err
			}
			if m.out == "" {
				_, err = c.OutOrStdout().Write(text)
				return err
			}
			if err := os.WriteFile(m.out, text, 0o644); err != nil {
				return fmt.Errorf("-o: %w", err)
			}
			return nil
		},
	}
	m.target.flags(c)
	c.Flags().StringVar(&m.Claim, "claim", "", "PersistentVolumeClaim with the model's files, or for the cache of the Hugging Face hub; default: an emptyDir, filled from the hub")
	c.Flags().StringVar(&m.Keys, "ranks-key", "", "Secret with the key that ranks authenticate each other by")
	backendFlag(c, &m.target.backend)
	c.Flags().BoolVar(&m.values, "values", false, "write values of the chart in deploy/chart")
	c.Flags().StringVarP(&m.out, "output", "o", "", "write to this `file` in place of stdout")
	c.Flags().StringVar(&m.Image, "image", imageName, "repository of the image; its tag is this version")
	c.Flags().IntVar(&m.Replicas, "replicas", 1, "number of servers")
	return c
}

// of plans the profile and returns the values of its server.
func (m *manifestFlags) of(c *cobra.Command, profile string) (*kubernetes.Values, error) {
	machine, err := m.target.machine(c)
	if err != nil {
		return nil, err
	}
	p, err := appliance.Prepare(profile, machine)
	if err != nil {
		return nil, err
	}
	defer p.Close()
	if p.Profile.Target == nil && m.target.gpu == "" && m.target.memory == "" {
		return nil, &kubernetes.TargetError{Profile: profile}
	}
	_, hub, err := appliance.HubName(p.Profile)
	if err != nil {
		return nil, err
	}
	locked, err := os.ReadFile(lock.FileOf(profile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	pod, err := kubernetes.Of(p.Profile, p.Plan, hub, locked)
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(profile)
	if err != nil {
		return nil, err
	}
	m.Text, m.Version = string(text), buildVersion()
	if m.Image == "" {
		m.Image = imageName // of diff, which compares tags alone
	}
	return pod.Values(m.Options, p.Profile.Model.Source)
}

// diffManifests prints what differs between a profile's plan and manifests, and returns an exit code: 1
// for differences, 2 where a pod would be refused.
func diffManifests(c *cobra.Command, m *manifestFlags, profile, at string) error {
	files, err := manifestFiles(at)
	if err != nil {
		return err
	}
	if m.Claim == "" {
		m.Claim = "any" // claims and Secrets are not compared
	}
	if m.Keys == "" {
		m.Keys = "any"
	}
	v, err := m.of(c, profile)
	if err != nil {
		return err
	}
	list, err := v.Compare(files)
	if nothing := (*kubernetes.NothingError)(nil); errors.As(err, &nothing) {
		return fmt.Errorf("--k8s %s: %w", at, err)
	} else if err != nil {
		return err
	}
	code := min(1, len(list))
	for _, d := range list {
		fmt.Fprintln(c.OutOrStdout(), d)
		if d.Short > 0 {
			code = 2
		}
	}
	if code > 0 {
		return exitError(code)
	}
	return nil
}

// manifestFiles reads a file, or the YAML files below a folder.
func manifestFiles(at string) ([]kubernetes.File, error) {
	var names []string
	err := filepath.WalkDir(at, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if !d.IsDir() && (path == at || slices.Contains([]string{".yaml", ".yml"}, strings.ToLower(filepath.Ext(path)))) {
			names = append(names, path)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("--k8s: %w", err)
	}
	var out []kubernetes.File
	for _, n := range names {
		text, err := os.ReadFile(n)
		if err != nil {
			return nil, fmt.Errorf("--k8s: %w", err)
		}
		out = append(out, kubernetes.File{Name: n, Text: text})
	}
	return out, nil
}
