package vapp_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/cuecontext"
	"cuelang.org/go/encoding/jsonschema"
	"cuelang.org/go/encoding/yaml"
)

// container is what the manifests of examples/ranks must agree on.
type container struct {
	Name, Image   string
	Command, Args []string
	Env           []struct {
		Name      string
		ValueFrom struct{ SecretKeyRef struct{ Name, Key string } }
	}
	Ports []struct {
		Name          string
		ContainerPort int
	}
	StartupProbe, ReadinessProbe, LivenessProbe struct {
		HTTPGet struct{ Path, Port string }
	}
	VolumeMounts []struct{ Name, MountPath string }
	Lifecycle    struct {
		PreStop struct{ Exec struct{ Command []string } }
	}
}

// pod is the template of a pod.
type pod struct {
	Metadata struct{ Labels map[string]string }
	Spec     struct {
		TerminationGracePeriodSeconds int
		Containers                    []container
		Volumes                       []struct {
			Name     string
			EmptyDir struct{ Medium string }
		}
	}
}

// manifest returns the first document of a file of examples/ranks.
func manifest(t *testing.T, name string) cue.Value {
	t.Helper()
	text, _, _ := strings.Cut(string(read(t, "examples/ranks/"+name)), "\n---\n")
	f, err := yaml.Extract(name, text)
	if err != nil {
		t.Fatal(err)
	}
	return cuecontext.New().BuildFile(f)
}

// podAt returns the template at a path of a manifest.
func podAt(t *testing.T, v cue.Value, path string) (p pod) {
	t.Helper()
	if err := v.LookupPath(cue.ParsePath(path)).Decode(&p); err != nil || len(p.Spec.Containers) != 1 {
		t.Fatalf("%s: %d containers, %v", path, len(p.Spec.Containers), err)
	}
	return p
}

// TestRankManifests checks what the manifests of examples/ranks need so that ranks start, drain and fail as one: no schema
// says it.
func TestRankManifests(t *testing.T) {
	for file, c := range map[string]struct{ first, other, profile string }{
		"lws.yaml":    {"spec.leaderWorkerTemplate.leaderTemplate", "spec.leaderWorkerTemplate.workerTemplate", "gpu.cue"},
		"mpijob.yaml": {"spec.mpiReplicaSpecs.Launcher.template", "spec.mpiReplicaSpecs.Worker.template", "profile.cue"},
	} {
		v := manifest(t, file)
		drain := drainTimeout(t, c.profile)
		for rank, p := range []pod{podAt(t, v, c.first), podAt(t, v, c.other)} {
			at := fmt.Sprintf("%s: rank %d", file, rank)
			if s := p.Spec; time.Duration(s.TerminationGracePeriodSeconds)*time.Second <= drain {
				t.Errorf("%s: terminationGracePeriodSeconds: %d, want more than serve.drainTimeout (%v)", at, s.TerminationGracePeriodSeconds, drain)
			}
			checkContainer(t, at, p, rank)
		}
	}
	v := manifest(t, "lws.yaml")
	if s, _ := v.LookupPath(cue.ParsePath("spec.leaderWorkerTemplate.restartPolicy")).String(); s != "RecreateGroupOnPodRestart" {
		t.Errorf("lws.yaml: restartPolicy %q: the other rank would wait for a group that is gone", s)
	}
	if n, _ := v.LookupPath(cue.ParsePath("spec.leaderWorkerTemplate.size")).Int64(); n != 2 {
		t.Errorf("lws.yaml: size %d, want 2 ranks", n)
	}
	v = manifest(t, "mpijob.yaml")
	if b, _ := v.LookupPath(cue.ParsePath("spec.runLauncherAsWorker")).Bool(); !b {
		t.Error("mpijob.yaml: rank 0 must be in the launcher's pod, which has the probes: runLauncherAsWorker")
	}
	if w := podAt(t, v, "spec.mpiReplicaSpecs.Worker.template").Spec.Containers[0]; len(w.Lifecycle.PreStop.Exec.Command) == 0 {
		t.Error("mpijob.yaml: the worker needs a preStop hook: sshd ends at once, and rank 1 with it")
	}
}

// checkContainer checks the container of a rank's pod.
func checkContainer(t *testing.T, at string, p pod, rank int) {
	t.Helper()
	c := p.Spec.Containers[0]
	for i, probe := range []string{c.StartupProbe.HTTPGet.Path, c.ReadinessProbe.HTTPGet.Path, c.LivenessProbe.HTTPGet.Path} {
		want := []string{"/readyz", "/readyz", "/livez"}[i]
		if rank > 0 {
			want = "" // it has no API
		}
		if probe != want {
			t.Errorf("%s: probe %d asks %q, want %q", at, i, probe, want)
		}
	}
	key := false
	for _, e := range c.Env {
		key = key || e.Name == "VAPP_RANKS_KEY" && e.ValueFrom.SecretKeyRef.Name != "" && e.ValueFrom.SecretKeyRef.Key != ""
	}
	if byMPI := strings.Contains(strings.Join(c.Command, " "), "sshd"); !key && !byMPI {
		t.Errorf("%s: VAPP_RANKS_KEY is not from a Secret", at)
	}
	mounts, shm := map[string]string{}, false
	for _, m := range c.VolumeMounts {
		mounts[m.Name] = m.MountPath
	}
	for _, v := range p.Spec.Volumes {
		shm = shm || mounts[v.Name] == "/dev/shm" && v.EmptyDir.Medium == "Memory"
		delete(mounts, v.Name)
	}
	if !shm || len(mounts) > 0 {
		t.Errorf("%s: /dev/shm in memory: %v; mounts without a volume: %v", at, shm, mounts)
	}
}

// drainTimeout returns serve.drainTimeout of a profile of examples/ranks.
func drainTimeout(t *testing.T, profile string) time.Duration {
	t.Helper()
	m := regexp.MustCompile(`drainTimeout: "([^"]+)"`).FindSubmatch(read(t, "examples/ranks/"+profile))
	if m == nil {
		t.Fatalf("examples/ranks/%s has no serve.drainTimeout", profile)
	}
	d, err := time.ParseDuration(string(m[1]))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// TestRankManifestSchemas compares the manifests with the schemas of their custom resource definitions, in the folders of
// VAPP_CRDS (scripts/examples-ranks.sh sets it).
func TestRankManifestSchemas(t *testing.T) {
	dirs := os.Getenv("VAPP_CRDS")
	if dirs == "" {
		t.Skip("VAPP_CRDS names no folders with custom resource definitions; scripts/examples-ranks.sh fetches them")
	}
	for file, crd := range map[string]string{"lws.yaml": "leaderworkerset.x-k8s.io_leaderworkersets.yaml", "mpijob.yaml": "kubeflow.org_mpijobs.yaml"} {
		found := 0
		for _, dir := range filepath.SplitList(dirs) {
			text, err := os.ReadFile(filepath.Join(dir, crd))
			if err != nil {
				continue
			}
			found++
			if err := matches(t, file, string(text)); err != nil {
				t.Errorf("%s and %s of %s: %v", file, crd, dir, err)
			}
		}
		if found == 0 {
			t.Errorf("%s is in no folder of VAPP_CRDS: %s", crd, dirs)
		}
	}
}

// matches returns how a manifest violates the definition of its custom resource; unknown fields are violations.
func matches(t *testing.T, file, definition string) error {
	t.Helper()
	v := manifest(t, file)
	f, err := yaml.Extract(file, definition)
	if err != nil {
		return err
	}
	crds, err := jsonschema.ExtractCRDs(v.Context().BuildFile(f), nil)
	if err != nil || len(crds) != 1 {
		return fmt.Errorf("%d definitions: %w", len(crds), err)
	}
	api, _ := v.LookupPath(cue.ParsePath("apiVersion")).String()
	group, version, _ := strings.Cut(api, "/")
	kind, _ := v.LookupPath(cue.ParsePath("kind")).String()
	schema := crds[0].Versions[version]
	if d := crds[0].Data.Spec; d.Group != group || d.Names.Kind != kind || schema == nil {
		return fmt.Errorf("%s of %s has another group, kind or version than %s of %s", kind, api, d.Names.Kind, d.Group)
	}
	def := v.Context().BuildFile(schema)
	if err := def.Err(); err != nil {
		return err
	}
	var raw, doc any
	if err := errors.Join(crds[0].Source.LookupPath(crds[0].VersionToPath[version]).Decode(&raw), v.Decode(&doc)); err != nil {
		return err
	}
	if err := unknownFields(raw, doc, kind); err != nil {
		return err
	}
	v = v.FillPath(cue.ParsePath("metadata.namespace"), "default") // kubectl adds it
	return def.Unify(v).Validate(cue.Concrete(true))
}

// unknownFields returns the fields of a document that an OpenAPI schema does not have, except in what it leaves open: the
// server drops them without an error.
func unknownFields(schema, doc any, at string) error {
	s, _ := schema.(map[string]any)
	var errs []error
	switch doc := doc.(type) {
	case []any:
		for i, e := range doc {
			errs = append(errs, unknownFields(s["items"], e, fmt.Sprintf("%s[%d]", at, i)))
		}
	case map[string]any:
		properties, _ := s["properties"].(map[string]any)
		if properties == nil || s["x-kubernetes-preserve-unknown-fields"] == true {
			return nil
		}
		for name, value := range doc {
			if p, ok := properties[name]; ok {
				errs = append(errs, unknownFields(p, value, at+"."+name))
			} else {
				errs = append(errs, fmt.Errorf("%s has no field %s", at, name))
			}
		}
	}
	return errors.Join(errs...)
}
