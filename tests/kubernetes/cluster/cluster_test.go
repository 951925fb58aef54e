package cluster

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"

	"vapp.dev/tests/kubernetes/controlplane"
	"vapp.dev/tests/kubernetes/node"
)

// repository is the root of the tree; model is the default model in it.
const (
	repository = "../../.."
	model      = "SmolLM2-135M-Instruct.Q4_1.gguf"
)

// unshared is set in the process that has a mount namespace of its own.
const unshared = "VAPP_TEST_UNSHARED"

// cluster is the control plane of all tests, with two nodes.
var cluster struct {
	*controlplane.ControlPlane
	nodes  []*node.Node
	models string // folder of the model's file
	dir    string
}

// TestMain starts this binary again in a mount namespace, so that no mount outlives it, and there the
// control plane and two nodes.
func TestMain(m *testing.M) {
	flag.Parse()
	if os.Geteuid() != 0 {
		fmt.Println("kubernetes: namespaces, mounts and control groups need root; nothing was tested")
		os.Exit(1)
	}
	if os.Getenv(unshared) == "" {
		os.Exit(again())
	}
	code, err := start(m)
	if err != nil {
		fmt.Println("kubernetes:", err)
		code = 1
	}
	os.Exit(code)
}

// again runs this binary in a mount namespace.
func again() int {
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Stdout, cmd.Stderr, cmd.Env = os.Stdout, os.Stderr, append(os.Environ(), unshared+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS, Unshareflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGTERM}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, os.Interrupt, syscall.SIGTERM)
	if err := cmd.Start(); err != nil {
		fmt.Println("kubernetes:", err)
		return 1
	}
	go func() {
		for s := range stop {
			_ = cmd.Process.Signal(s)
		}
	}()
	if err := cmd.Wait(); err != nil {
		return max(1, cmd.ProcessState.ExitCode())
	}
	return 0
}

func start(m *testing.M) (code int, err error) {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	root, err := filepath.Abs(repository)
	if err != nil {
		return 0, err
	}
	cluster.models = filepath.Join(root, "models")
	if at, err := filepath.EvalSymlinks(cluster.models); err == nil {
		cluster.models = at
	}
	if _, err := os.Stat(filepath.Join(cluster.models, model)); err != nil {
		return 0, fmt.Errorf("%w; `make model` fetches it", err)
	}
	if cluster.dir, err = os.MkdirTemp("", "vapp-kubernetes-"); err != nil {
		return 0, err
	}
	if err := os.Chmod(cluster.dir, 0o755); err != nil { // pods have other users
		return 0, err
	}
	control := filepath.Join(cluster.dir, "control")
	if err := os.Mkdir(control, 0o700); err != nil {
		return 0, err
	}
	bin := filepath.Join(root, ".cache/kubernetes/bin")
	lws, err := os.ReadFile(filepath.Join(bin, "lws.dir"))
	if err != nil {
		return 0, fmt.Errorf("%w; scripts/kubernetes.sh builds the control plane", err)
	}
	network, err := node.NewNetwork()
	if err != nil {
		return 0, err
	}
	defer network.Close()
	began := time.Now()
	cluster.ControlPlane, err = controlplane.Start(ctx, controlplane.Options{
		Bin: bin, Dir: control, LWS: strings.TrimSpace(string(lws)), ServiceCIDR: network.ServiceCIDR,
	})
	if err != nil {
		return 0, err
	}
	defer cluster.Stop()
	if err := network.Serve(ctx, cluster.Client); err != nil {
		return 0, err
	}
	labels := map[string]string{"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"}
	for _, f := range []string{"AVX2", "FMA3", "AVX512BW", "AVX512DQ", "AVX512F", "AVX512VL", "AVX512BF16", "AMXBF16", "AMXINT8", "AMXTILE"} {
		labels["feature.node.kubernetes.io/cpu-cpuid."+f] = "true"
	}
	capacity := node.Resources("8", "32Gi")
	capacity["nvidia.com/gpu"] = resource.MustParse("2") // of the emulated driver
	for _, name := range []string{"a", "b"} {
		n, err := node.Start(ctx, cluster.Client, network, node.Options{
			Name: name, Dir: filepath.Join(cluster.dir, "node-"+name), Labels: labels, Capacity: capacity,
			Images: map[string]string{"vapp": filepath.Join(root, "bin/vapp"), "vapp-cuda": filepath.Join(root, "bin/vapp-cuda")},
		})
		if err != nil {
			return 0, err
		}
		defer n.Close()
		cluster.nodes = append(cluster.nodes, n)
	}
	fmt.Printf("kubernetes: the control plane and two nodes are ready after %.1f s\n", time.Since(began).Seconds())
	code = m.Run()
	if code == 0 {
		defer os.RemoveAll(cluster.dir)
	} else {
		fmt.Println("kubernetes: logs of the control plane and the pods are in", cluster.dir)
	}
	return code, nil
}

// namespace makes a namespace that enforces restricted Pod Security, with a claim "models" that has
// the default model.
func namespace(t *testing.T, name string) string {
	t.Helper()
	return namespaceOf(t, name, cluster.models)
}

// namespaceOf is namespace with a claim of another folder.
func namespaceOf(t *testing.T, name, models string) string {
	t.Helper()
	ctx := t.Context()
	labels := map[string]string{}
	for _, mode := range []string{"enforce", "warn", "audit"} {
		labels["pod-security.kubernetes.io/"+mode] = "restricted"
	}
	if _, err := cluster.Client.CoreV1().Namespaces().Create(ctx, &core.Namespace{ObjectMeta: meta.ObjectMeta{Name: name, Labels: labels}}, meta.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	size := core.ResourceList{core.ResourceStorage: resource.MustParse("10Gi")}
	none, modes := "", []core.PersistentVolumeAccessMode{core.ReadOnlyMany}
	volume := &core.PersistentVolume{
		ObjectMeta: meta.ObjectMeta{Name: name + "-models"},
		Spec: core.PersistentVolumeSpec{
			Capacity: size, AccessModes: modes, PersistentVolumeSource: core.PersistentVolumeSource{HostPath: &core.HostPathVolumeSource{Path: models}},
			ClaimRef: &core.ObjectReference{Namespace: name, Name: "models"},
		},
	}
	if _, err := cluster.Client.CoreV1().PersistentVolumes().Create(ctx, volume, meta.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	claim := &core.PersistentVolumeClaim{
		ObjectMeta: meta.ObjectMeta{Name: "models"},
		Spec: core.PersistentVolumeClaimSpec{
			AccessModes: modes, StorageClassName: &none, VolumeName: volume.Name, Resources: core.VolumeResourceRequirements{Requests: size},
		},
	}
	if _, err := cluster.Client.CoreV1().PersistentVolumeClaims(name).Create(ctx, claim, meta.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		zero := int64(0)
		_ = cluster.Client.CoreV1().Pods(name).DeleteCollection(context.Background(), meta.DeleteOptions{GracePeriodSeconds: &zero}, meta.ListOptions{})
		_ = cluster.Client.CoreV1().Namespaces().Delete(context.Background(), name, meta.DeleteOptions{})
	})
	return name
}
