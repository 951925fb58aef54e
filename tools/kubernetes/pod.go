// Package kubernetes turns a plan into what Kubernetes must know of a server: the bytes, cores and
// devices of its pods, the values of the chart in deploy/chart, and plain manifests. It compares a
// plan with manifests too.
//
// It must not read a clock, ask a cluster or plan anything: equal plans give equal text. Start
// reading at Of in pod.go, then at Values in values.go.
package kubernetes

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"net"
	"net/url"
	"path"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"vapp.dev/appliance/plan"
	"vapp.dev/engine/backend"
	"vapp.dev/schema"
)

// Pod is what one pod of a server needs. With ranks, a pod is a rank.
type Pod struct {
	Name  string // of the profile, a DNS label
	Ranks int    // pods that serve together; 1: the server is one pod
	// Planned is what the plan takes of the machine's memory, in bytes. Memory is the limit of the
	// container: Planned in whole pages, or, where the profile asks for a share of the machine, that
	// machine's memory: then it is the container. /dev/shm counts in both cases.
	Planned, Memory int64
	Cores           int    // CPU cores of the plan; of a GPU server, those that serve
	GPU             bool   // the pod has one
	Product         string // of the GPU, as NVIDIA's feature discovery labels nodes
	Arch            string // as Kubernetes names it; "": any
	// Features are those of the plan's instruction set, as the node feature discovery labels nodes.
	Features     []string
	SharedMemory int64 // bytes of /dev/shm
	Swap         int64 // bytes of the file for swapped KV pages
	Load         int   // seconds that loading may take
	Drain        int   // seconds of serve.drainTimeout
	Port         int
	Models       string // folder of the model's files in the container
	Hub          bool   // the model comes from the Hugging Face Hub
	File         string // the profile's file name
	Plan         string // hash of the plan and of the fields that a running server does not change
	// Share is true if the profile asks for a share of the machine: with a smaller limit the server
	// has a smaller KV cache.
	Share bool
	Lock  string // SHA-256 of the lock file; "": there is none
	// Listens are the ports beside Port that the profile opens to clients. Calls are the ports that it
	// calls on other hosts, beside DNS and 443 for the Hub. Both are sorted.
	Listens, Calls []int
}

// Paths in the container, as the image has them.
const (
	profileFolder = "/etc/vapp"
	cacheFolder   = "/var/cache/vapp"
)

// How long loading may take: a start, and the weights at a rate that slow network volumes have.
const (
	startSeconds = 60
	loadRate     = 100 << 20 // bytes a second
)

// servingCores are those of a GPU server: the engine's loop, HTTP and two text workers.
const servingCores = 4

// pageBytes is the largest page of a kernel, of some arm64 ones: a control group rounds its limit down
// to whole pages.
const pageBytes = 64 << 10

// sharedOfRanks is the shared memory that NCCL or Open MPI takes between ranks of one node.
const sharedOfRanks = 2 << 30

// TargetError reports a profile that names no machine, when no flag names one.
type TargetError struct{ Profile string }

func (e *TargetError) Error() string {
	return e.Profile + ": target: the profile names no machine for its pods; set target, or give --gpu (cpu-16c-64g, a100-80g, …) or --memory"
}

// Of returns what a pod of the plan needs. hub is true if model.source is a name on the Hub; lock is
// the text of the lock file, nil if there is none. The error is a *schema.Error for a field that no
// pod can have.
func Of(profile *schema.Profile, p *plan.Plan, hub bool, lock []byte) (Pod, error) {
	name, err := label(profile)
	if err != nil {
		return Pod{}, err
	}
	if err := check(profile, p, hub); err != nil {
		return Pod{}, err
	}
	file := path.Base(profile.File())
	pod := Pod{
		Name: name, Ranks: max(1, p.Ranks), Planned: p.Ledger.Total(), Memory: p.Ledger.Total(), Cores: p.Facts.Cores,
		Swap: p.Ledger.Bytes(backend.Swap.String()), Drain: seconds(profile.Serve.DrainTimeout), Port: profile.Serve.Port,
		Models: cacheFolder, Hub: hub, File: file, Plan: fixed(profile, p),
		Load: startSeconds + int((p.Ledger.Bytes(backend.Weights.String())+loadRate-1)/loadRate),
	}
	if !hub {
		pod.Models = modelFolder(profile.Model.Source)
	}
	if lock != nil {
		sum := sha256.Sum256(lock)
		pod.Lock = hex.EncodeToString(sum[:])
	}
	switch {
	case p.Backend == "cuda":
		pod.GPU, pod.Cores, pod.Product = true, servingCores, strings.ReplaceAll(p.Facts.Device, " ", "-")
		pod.Planned = p.HostNeed()
		pod.Memory = pod.Planned
	case profile.Memory.KVCache == 0: // a share of the machine, which the container is
		pod.Memory, pod.Share = p.Facts.TotalBytes, true
	}
	if !pod.GPU {
		pod.Arch, pod.Features = instructionSet(p)
	}
	if pod.Ranks > 1 {
		pod.SharedMemory = sharedOfRanks
		pod.Memory += sharedOfRanks
	}
	pod.Memory = (pod.Memory + pageBytes - 1) / pageBytes * pageBytes
	pod.Listens, pod.Calls = ports(profile)
	return pod, nil
}

// check refuses fields that a pod cannot have.
func check(profile *schema.Profile, p *plan.Plan, hub bool) error {
	serve := profile.Serve
	switch {
	case serve.Port == 0:
		return profile.Reject("serve.port", "0 is any free port, which no Service finds; allowed in a cluster: 1 to 65535")
	case serve.Host == "127.0.0.1" || serve.Host == "localhost" || serve.Host == "::1":
		return profile.Reject("serve.host", "%s is not reached from outside the pod; allowed in a cluster: \"0.0.0.0\"", serve.Host)
	case serve.TLS != nil:
		return profile.Reject("serve.tls", "the probes and the Service of a pod speak HTTP; end TLS at the gateway and leave this out")
	case p.Backend != "cuda" && p.Ranks > 1 && profile.CPU.Ranks > 1:
		return profile.Reject("cpu.ranks", "%d ranks on one host, and a pod is a rank; allowed in a cluster: 1, the default", profile.CPU.Ranks)
	}
	for i, k := range serve.APIKeys {
		at := fmt.Sprintf("serve.apiKeys[%d]", i)
		if k.Secret() != "" {
			return profile.Reject(at, "a key in clear text would stand in a ConfigMap; allowed in a cluster: {env} or {file} from a Secret")
		}
		if k.File != "" && !path.IsAbs(k.File) {
			return profile.Reject(at, "%s is beside the profile, and the ConfigMap has the profile alone; allowed in a cluster: the absolute path of a Secret's volume", k.File)
		}
	}
	for _, f := range paths(profile) {
		if strings.HasPrefix(f.path, "~") || within(inContainer(f.path), profileFolder) {
			return profile.Reject(f.field, "%s is beside the profile, and the ConfigMap has the profile alone; allowed in a cluster: the absolute path of a volume", f.path)
		}
	}
	if k := profile.Parallel.Key; k != nil && k.Secret() != "" {
		return profile.Reject("parallel.key", "a key in clear text would stand in a ConfigMap; leave it out: the ranks have that of the Secret")
	}
	if t := profile.Parsers.ChatTemplate; t != "" && !strings.Contains(t, "{{") && !strings.Contains(t, "{%") && !path.IsAbs(t) {
		return profile.Reject("parsers.chatTemplate", "%s is beside the profile, and the ConfigMap has the profile alone; write the template's text into it", t)
	}
	own := len(profile.Policies())
	if !profile.InMemory() {
		own++
	}
	for _, f := range profile.Files()[own:] {
		if path.Base(path.Dir(f)) != "cue.mod" { // the module's name: nothing of it is in the profile
			return profile.Reject("", "the profile imports %s, and the ConfigMap has the profile alone; write the fields into it", f)
		}
	}
	source := profile.Model.Source
	switch {
	case hub:
	case strings.HasPrefix(source, "~"):
		return profile.Reject("model.source", "%s is in the home folder of this machine; allowed in a cluster: a path of a volume, or a name on the Hub", source)
	case within(modelFolder(source), profileFolder):
		return profile.Reject("model.source", "%s is in the profile's folder, which is the ConfigMap's in a cluster; allowed: a path that leaves it (\"../models/…\"), or an absolute one", source)
	}
	return nil
}

// named is a field that names a file or folder.
type named struct{ field, path string }

// paths returns the files and folders that the profile names, beside its model, its keys and its template.
func paths(profile *schema.Profile) (out []named) {
	add := func(field, p string) {
		if p != "" {
			out = append(out, named{field, p})
		}
	}
	if l := profile.LoRA; l != nil {
		for _, name := range slices.Sorted(maps.Keys(l.Adapters)) {
			add("lora.adapters."+name, l.Adapters[name])
		}
	}
	if m := profile.Multimodal; m != nil {
		add("multimodal.allowedPath", m.AllowedPath)
	}
	if a := profile.Log.Audit; a != nil {
		add("log.audit.file", a.File)
	}
	if r := profile.Serve.Responses; r != nil {
		add("serve.responses.store", r.Store)
	}
	if k := profile.Parallel.Key; k != nil {
		add("parallel.key", k.File)
	}
	if c := profile.CPU.PackedCache; c != "off" && c != "auto" {
		add("cpu.packedCache", c)
	}
	return out
}

// ports returns the ports at which the profile listens beside its API, and those that it calls beside the Hub's. What variables of
// OpenTelemetry name is not among them.
func ports(profile *schema.Profile) (listens, calls []int) {
	add := func(list *[]int, port string) {
		if n, err := strconv.Atoi(port); err == nil && n > 0 && !slices.Contains(*list, n) {
			*list = append(*list, n)
		}
	}
	if e := profile.Serve.KVEvents; e != nil {
		if at, ok := strings.CutPrefix(e.Endpoint, "tcp://"); ok {
			host, port, _ := net.SplitHostPort(at) // the schema has checked it
			to := &calls
			if host == "*" || host == "0.0.0.0" || strings.Contains(host, "::") {
				to = &listens
			}
			add(to, port)
		}
		if at, ok := strings.CutPrefix(e.ReplayEndpoint, "tcp://"); ok {
			_, port, _ := net.SplitHostPort(at)
			add(&listens, port)
		}
	}
	if t := profile.Serve.Traces; t != nil && t.Endpoint != "" {
		if u, err := url.Parse(t.Endpoint); err == nil {
			add(&calls, cmp.Or(u.Port(), map[string]string{"http": "80", "https": "443"}[u.Scheme]))
		}
	}
	if m := profile.Multimodal; m != nil && len(m.AllowedDomains) > 0 {
		add(&calls, "80")
		add(&calls, "443")
	}
	slices.Sort(listens)
	slices.Sort(calls)
	return listens, calls
}

// inContainer returns the path in the container that a path of the profile leads to.
func inContainer(p string) string {
	if !path.IsAbs(p) {
		p = path.Join(profileFolder, p)
	}
	return path.Clean(p)
}

// modelFolder returns the folder of the container that must have the model's file or folder.
func modelFolder(source string) string { return path.Dir(inContainer(source)) }

func within(p, folder string) bool { return p == folder || strings.HasPrefix(p, folder+"/") }

// fixed returns a hash of the plan and of the profile without the fields that a running server changes
// by itself: pods are replaced when it differs.
func fixed(profile *schema.Profile, p *plan.Plan) string {
	blank := &schema.Profile{}
	fill(reflect.ValueOf(blank).Elem())
	sum := sha256.Sum256([]byte(p.Digest() + profile.Take(blank, schema.Live, schema.Drain).Hash()))
	return hex.EncodeToString(sum[:])
}

// fill allocates the optional structs below v, so that Take reaches their fields.
func fill(v reflect.Value) {
	for i := range v.NumField() {
		f := v.Field(i)
		if !f.CanSet() {
			continue
		}
		if f.Kind() == reflect.Pointer && f.Type().Elem().Kind() == reflect.Struct {
			f.Set(reflect.New(f.Type().Elem()))
			f = f.Elem()
		}
		if f.Kind() == reflect.Struct {
			fill(f)
		}
	}
}

// seconds rounds a duration up.
func seconds(d schema.Duration) int { return int((int64(d) + 1e9 - 1) / 1e9) }

// label returns the profile's name as a DNS label of at most 50 characters, which leaves room for
// suffixes.
func label(profile *schema.Profile) (string, error) {
	out := strings.Trim(strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9':
			return r
		case r >= 'A' && r <= 'Z':
			return r - 'A' + 'a'
		}
		return '-'
	}, profile.Name), "-")
	if out == "" || len(out) > 50 || out[0] < 'a' {
		return "", profile.Reject("name", "%q is no Kubernetes name; allowed in a cluster: a letter, then letters, digits and dashes, at most 50 in all", profile.Name)
	}
	return out, nil
}

// features are the CPU features that each instruction set of backend cpu needs, by their names in the
// labels of Node Feature Discovery (cpu-cpuid.*).
var features = map[string]struct {
	arch  string
	names []string
}{
	"generic":    {"", nil},
	"avx2":       {"amd64", []string{"AVX2", "FMA3"}},
	"avx512":     {"amd64", []string{"AVX512BW", "AVX512DQ", "AVX512F", "AVX512VL"}},
	"avx512bf16": {"amd64", []string{"AVX512BF16"}},
	"amx":        {"amd64", []string{"AMXBF16", "AMXINT8", "AMXTILE"}},
	"neon":       {"arm64", nil},
	"dotprod":    {"arm64", []string{"ASIMDDP"}},
	"i8mm":       {"arm64", []string{"I8MM"}},
}

// instructionSet returns the architecture and the features that the plan's variant needs.
func instructionSet(p *plan.Plan) (string, []string) {
	for _, c := range p.Choices {
		if c.Name == "variant" {
			return features[c.Value].arch, features[c.Value].names
		}
	}
	return "", nil
}
