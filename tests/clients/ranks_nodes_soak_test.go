//go:build clients && soak

package clients

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// nodes are two network namespaces with a link, each with a control group: two machines, as far as ranks can see. Node 1 has a second
// link, to the test.
type nodes struct {
	name      string
	addresses [2]string // on the link between them
	client    string    // of node 1, for the test
	env       []string
}

// nodesMade is how many pairs of nodes this process has made. The system takes some time to remove the links of a namespace, so each pair
// has names and addresses of its own.
var nodesMade int

// newNodes makes two nodes whose memory is limited. They need root and the program ip.
func newNodes(t *testing.T, memory int64) *nodes {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("not run: network namespaces need root")
	}
	p := (os.Getpid() + 83*nodesMade) % 250
	nodesMade++
	n := &nodes{name: fmt.Sprintf("vapp%d-", p), client: fmt.Sprintf("10.79.%d.1", p)}
	n.env = []string{"VAPP_NODES=" + n.name, "VAPP_RANKS_KEY=of the two nodes"}
	ip := func(args string) {
		t.Helper()
		if out, err := exec.Command("ip", strings.Fields(args)...).CombinedOutput(); err != nil {
			t.Skipf("not run: ip %s: %v: %s", args, err, out)
		}
	}
	for i := range n.addresses {
		space := fmt.Sprint(n.name, i+1)
		ip("netns add " + space)
		t.Cleanup(func() { _ = exec.Command("ip", "netns", "delete", space).Run() })
		ip("-n " + space + " link set lo up")
		n.addresses[i] = fmt.Sprintf("10.78.%d.%d", p, i+1)
		g := newCgroup(t, memory)
		n.env = append(n.env, fmt.Sprintf("VAPP_NODE_GROUP_%d=%s", i+1, filepath.Join(g.dir, "cgroup.procs")))
	}
	link := func(a, at, inA, b, inB string) {
		ip(fmt.Sprintf("link add %s type veth peer name %s", a, b))
		for _, end := range [][3]string{{a, inA, at + ".1"}, {b, inB, at + ".2"}} {
			in := ""
			if end[1] != "" {
				ip("link set " + end[0] + " netns " + end[1])
				in = "-n " + end[1] + " "
			}
			ip(in + "address add " + end[2] + "/24 dev " + end[0])
			ip(in + "link set " + end[0] + " up")
		}
	}
	link(fmt.Sprint("va", p), fmt.Sprintf("10.78.%d", p), n.name+"1", fmt.Sprint("vb", p), n.name+"2")
	link(fmt.Sprint("vc", p), fmt.Sprintf("10.79.%d", p), n.name+"1", fmt.Sprint("vd", p), "")
	return n
}

// cut takes the link between the nodes down.
func (n *nodes) cut(t *testing.T) {
	t.Helper()
	if out, err := exec.Command("ip", "-n", n.name+"1", "link", "set", strings.Replace(strings.TrimSuffix(n.name, "-"), "vapp", "va", 1), "down").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// start runs `vapp up` on both nodes by the example's mpirun.sh, which runs on node 1.
func (n *nodes) start(t *testing.T, r *ranked) {
	t.Helper()
	agent, err := filepath.Abs("testdata/node.sh")
	if err != nil {
		t.Fatal(err)
	}
	net := strings.TrimSuffix(n.addresses[0], ".1") + ".0/24"
	mpirun, err := filepath.Abs("../../examples/ranks/mpirun.sh")
	if err != nil {
		t.Fatal(err)
	}
	command := []string{mpirun, "--allow-run-as-root", "-q", "--bind-to", "none", "-H", strings.Join(n.addresses[:], ","), "-n", "2"}
	for _, v := range []string{"plm_rsh_agent " + agent, "oob_tcp_if_include " + net, "btl_tcp_if_include " + net} {
		command = append(command, "--mca "+v)
	}
	command = append(command, vapp(t), "up", r.profile(), "--set", "serve.host=0.0.0.0")
	r.start(t, "env", append(append(n.env, agent, n.addresses[0]), strings.Join(command, " "))...)
	r.awaitURL(t)
	r.url = strings.Replace(r.url, "127.0.0.1", n.client, 1)
}

// TestSoakRanksCutLink takes the link between two nodes down while a client reads a stream.
func TestSoakRanksCutLink(t *testing.T) {
	n := newNodes(t, 4<<30)
	r := newRanked(t, strings.Replace(twoStages, "cpu: ranks: 2", "", 1))
	n.start(t, r)
	r.awaitPhase(t, "ready")
	s := r.stream(t, 4000)
	r.members()
	health := watchHealth(r.url)
	at := time.Now()
	n.cut(t)
	row := killed{kill: kill{"link", 0, "decode"}, gone: r.gone(t, at), client: s.saw(), code: r.code(), health: health(), left: r.left()}
	row.check(t)
	if !strings.HasPrefix(row.client, "error") {
		t.Errorf("the client saw: %s", row.client)
	}
	t.Logf("the log:\n%s", r.log())
	report(t, []killed{row})
}

// qwen2 is Qwen2-7B at full size with random weights in fp8, as two ranks. One alone needs more than the memory of a node.
const qwen2 = `package profiles

import "vapp.dev/schema"

schema.#Profile & {
	name: "qwen2-7b-two-nodes"
	model: {source: "Qwen/Qwen2-7B-Instruct", loadFormat: "dummy"}
	backend:      "cpu"
	quantization: "fp8"
	maxModelLen:  "1K"
	memory: kvCache: "64MiB"
	scheduler: {maxNumSeqs: 8, maxNumBatchedTokens: 256}
	parallel: tensor: %d
	serve: {port: 0, servedModelName: ["smollm2"], accessLog: false}
}
`

// nodeMemory is too small for qwen2 on one node.
const nodeMemory = 7 << 30

// TestSoakRanksNodes serves a model that is too large for a node on two of them: what is planned is allocated, to the byte, and a
// benchmark loses no request.
func TestSoakRanksNodes(t *testing.T) {
	n := newNodes(t, nodeMemory)
	r := newRanked(t, twoStages)
	alone := filepath.Join(r.dir, "alone.cue")
	for path, ranks := range map[string]int{r.profile(): 2, alone: 1} {
		if err := os.WriteFile(path, fmt.Appendf(nil, qwen2, ranks), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	one := exec.Command("testdata/node.sh", n.addresses[1], vapp(t)+" plan "+alone)
	one.Env = append(os.Environ(), n.env...)
	if out, err := one.CombinedOutput(); err == nil || !bytes.Contains(out, []byte("does not fit")) {
		t.Fatalf("one rank on one node: %v\n%s", err, out)
	}
	at := time.Now()
	n.start(t, r)
	for end := time.Now().Add(5 * time.Minute); status(r.url, "/readyz") != "ready"; time.Sleep(100 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("not ready after five minutes")
		}
	}
	ledgers := regexp.MustCompile(`(?m)^.*ledger: planned bytes = actual bytes.* difference=0$`).FindAllString(r.log(), -1)
	if len(ledgers) != 2 {
		t.Errorf("%d ledgers without a difference:\n%s", len(ledgers), r.log())
	}
	t.Logf("ready after %v\n%s", time.Since(at).Round(time.Second), strings.Join(ledgers, "\n"))
	for _, m := range r.members() {
		if strings.HasPrefix(m.name, "rank") {
			t.Logf("%s: %.0f MiB resident at most", m.name, memoryOf(t, m.pid, "VmHWM:")/(1<<20))
		}
	}
	c := exec.Command(vapp(t), "bench", "serve", "--base-url", r.url, "--dataset-name", "random", "--random-input-len", "64", "--random-output-len", "16",
		"--num-prompts", "8", "--ignore-eos", "--seed", "7", "--disable-tqdm")
	out, complaint, exit := code(t, c)
	t.Logf("exit code %d\n%s\n%s", exit, out, complaint)
	if _, v := benchFigures(t, out); v["Successful requests:"] != 8 || v["Total generated tokens:"] != 8*16 {
		t.Errorf("%v of 8 requests, %v tokens", v["Successful requests:"], v["Total generated tokens:"])
	}
	r.signal(t, "mpirun", syscall.SIGTERM)
	r.clean(t)
}
