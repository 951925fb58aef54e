package cluster

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestGroup: a LeaderWorkerSet of two pipeline ranks serves, on the emulated CUDA driver. When the worker
// or the leader is killed, the group is made anew and serves again.
func TestGroup(t *testing.T) {
	files := groupFiles(t)
	s := &server{t: t, namespace: namespaceOf(t, "group", files), name: "group"}
	s.profile = emulated("parallel: pipeline: 2")
	s.args = []string{"--image", "vapp-cuda", "--ranks-key", "ranks"}
	// Ranks of one machine exchange data in /dev/shm. The emulated NCCL does so between pods too, so they
	// have the host's in place of one each.
	s.values = []string{emulatedValues}
	s.key()
	s.group()
}

// TestGroupCPU is TestGroup for ranks on CPUs: rank 0's pod runs mpirun, which reaches the worker's pod without ssh.
func TestGroupCPU(t *testing.T) {
	s := &server{t: t, namespace: namespace(t, "group-cpu"), name: "group", profile: profile("scheduler: maxNumSeqs: 2", "parallel: pipeline: 2"), args: []string{"--ranks-key", "ranks"}}
	s.key()
	s.group()
}

// key makes the Secret with the key of the ranks.
func (s *server) key() {
	s.t.Helper()
	secret := &core.Secret{ObjectMeta: meta.ObjectMeta{Name: "ranks"}, StringData: map[string]string{"key": strings.Repeat("k", 32)}}
	if _, err := cluster.Client.CoreV1().Secrets(s.namespace).Create(s.t.Context(), secret, meta.CreateOptions{}); err != nil {
		s.t.Fatal(err)
	}
}

// group waits for a reply of a group, and for the same one after its worker and its leader were killed.
func (s *server) group() {
	t := s.t
	began := time.Now()
	s.apply(s.render())
	want := s.answer("")
	t.Logf("two ranks serve after %.1f s", time.Since(began).Seconds())
	for _, role := range []string{"worker", "leader"} {
		var victim core.Pod
		for _, p := range s.pods() {
			if p.Labels["vapp.dev/role"] == role {
				victim = p
			}
		}
		began = time.Now()
		killPod(t, victim)
		eventually(t, 3*time.Minute, func() string {
			for _, p := range s.pods() {
				if p.UID == victim.UID {
					return "the " + role + " is still the old pod"
				}
			}
			return ""
		})
		anew := time.Since(began)
		s.answer(want)
		t.Logf("the %s was killed: the group was made anew after %.1f s and served after %.1f s", role, anew.Seconds(), time.Since(began).Seconds())
	}
}

// emulated returns a profile of the default model on an emulated GPU.
func emulated(more string) string {
	return `name: "emulated"
model: source: "../models/` + model + `"
target: gpu: "a100-80g"
backend: "cuda"
maxModelLen: "1K"
memory: kvCache: "64MiB"
scheduler: {maxNumSeqs: 1, maxNumBatchedTokens: 64}
cudagraph: mode: "none"
serve: servedModelName: ["smollm2"]
` + more + "\n"
}

// emulatedValues name the emulated libraries that groupFiles puts beside the model. A step on a busy machine may take longer than the emulated NCCL
// waits by itself.
const emulatedValues = `pod:
  sharedMemory: ""
  env: [{name: VAPP_LIBCUDA, value: /etc/models/libcuda.so}, {name: VAPP_LIBNCCL, value: /etc/models/libnccl.so}, {name: VAPP_EMULATED_NCCL, value: timeout=600000}]
`

// answer waits for a reply through the Service, which must be want unless that is "".
func (s *server) answer(want string) (text string) {
	s.t.Helper()
	eventually(s.t, 8*time.Minute, func() string {
		var err error
		if text, err = stream(s.t.Context(), s.url(), "Hi", 3); err != nil {
			return err.Error() + "\n" + s.explain()
		}
		return ""
	})
	if want != "" && text != want {
		s.t.Errorf("the reply is %q, it was %q", text, want)
	}
	return text
}

// killPod kills the processes of a pod, as an out-of-memory killer does.
func killPod(t *testing.T, p core.Pod) {
	t.Helper()
	for _, n := range cluster.nodes {
		if n.Kill(string(p.UID)) {
			return
		}
	}
	t.Fatalf("no node runs %s", p.Name)
}

// groupFiles makes a folder with the model and the emulated libraries.
func groupFiles(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(cluster.dir, t.Name())
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for to, from := range map[string]string{
		model: filepath.Join(cluster.models, model), "libcuda.so": repository + "/.cache/emulation/libcuda.so", "libnccl.so": repository + "/.cache/emulation/libnccl.so",
	} {
		text, err := os.ReadFile(from)
		if err != nil {
			t.Fatalf("%v; `make emulated-driver` makes the libraries", err)
		}
		if err := os.WriteFile(filepath.Join(dir, to), text, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}
