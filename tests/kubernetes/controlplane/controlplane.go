// Package controlplane runs a Kubernetes control plane on loopback: etcd, kube-apiserver,
// kube-controller-manager, kube-scheduler and the controller of LeaderWorkerSet, each a process
// of its own on a free port. scripts/kubernetes.sh builds the programs from their modules.
// It must not know vapp, and it starts no pods: package node does. Start reading at Start.
package controlplane

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Options say how a control plane is started.
type Options struct {
	// Bin is the folder with the programs.
	Bin string
	// Dir is a new folder for data, certificates and logs.
	Dir string
	// LWS is the folder of the module sigs.k8s.io/lws. Empty: without LeaderWorkerSet.
	LWS string
	// ServiceCIDR is where the addresses of Services are from.
	ServiceCIDR string
	// APIOnly starts etcd and kube-apiserver alone: no controller changes what a test writes, and pods need no ServiceAccount.
	APIOnly bool
	// Notify gets a line when a program is ready.
	Notify func(string)
}

// ControlPlane is a running control plane.
type ControlPlane struct {
	// Kubeconfig is the path of a file with the rights of cluster-admin.
	Kubeconfig string
	// Config and Client have the same rights, without a limit of requests a second.
	Config *rest.Config
	Client *kubernetes.Clientset

	options   Options
	ca        *authority
	processes []*process // in the order of their start
}

// Start starts all programs and returns when each is ready. An error names the program and has
// the end of its log. Programs that were started are stopped then.
func Start(ctx context.Context, o Options) (_ *ControlPlane, err error) {
	programs := []string{"etcd", "kube-apiserver", "kubectl"}
	if !o.APIOnly {
		programs = append(programs, "kube-controller-manager", "kube-scheduler", "lws-controller")
	}
	for _, name := range programs {
		if _, err := os.Stat(filepath.Join(o.Bin, name)); err != nil {
			return nil, fmt.Errorf("%s lacks %s: run scripts/kubernetes.sh", o.Bin, name)
		}
	}
	if o.Notify == nil {
		o.Notify = func(string) {}
	}
	c := &ControlPlane{options: o, Kubeconfig: filepath.Join(o.Dir, "kubeconfig")}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Stop())
		}
	}()
	if c.ca, err = newAuthority(o.Dir); err != nil {
		return nil, err
	}
	ports, err := freePorts(8)
	if err != nil {
		return nil, err
	}
	if err := c.etcd(ctx, ports[0], ports[1]); err != nil {
		return nil, err
	}
	if err := c.apiServer(ctx, ports[0], ports[2]); err != nil {
		return nil, err
	}
	if o.APIOnly {
		return c, nil
	}
	if err := c.controllers(ctx, ports[3], ports[4]); err != nil {
		return nil, err
	}
	if o.LWS != "" {
		if err := c.leaderWorkerSet(ctx, ports[5], ports[6]); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// Stop ends all programs, the last started first, and returns those that did not end in time.
func (c *ControlPlane) Stop() error {
	var errs []error
	for i := len(c.processes) - 1; i >= 0; i-- {
		errs = append(errs, c.processes[i].stop(5*time.Second))
	}
	c.processes = nil
	return errors.Join(errs...)
}

func (c *ControlPlane) etcd(ctx context.Context, client, peer int) error {
	url := loopback("http", client)
	return c.run(ctx, url+"/readyz", "etcd", "--data-dir="+filepath.Join(c.options.Dir, "etcd"),
		"--listen-client-urls="+url, "--advertise-client-urls="+url, "--listen-peer-urls="+loopback("http", peer),
		"--log-level=error", "--unsafe-no-fsync")
}

func (c *ControlPlane) apiServer(ctx context.Context, etcd, port int) error {
	if err := c.ca.issue("apiserver", "kubernetes.default.svc", "localhost"); err != nil {
		return err
	}
	token := make([]byte, 16)
	if _, err := rand.Read(token); err != nil {
		return err
	}
	secret := hex.EncodeToString(token)
	tokens := filepath.Join(c.options.Dir, "tokens.csv")
	if err := os.WriteFile(tokens, []byte(secret+`,admin,1,"system:masters"`+"\n"), 0o600); err != nil {
		return err
	}
	url := loopback("https", port)
	kubeconfig := fmt.Sprintf(`apiVersion: v1
kind: Config
clusters: [{name: test, cluster: {server: %q, certificate-authority: %q}}]
users: [{name: admin, user: {token: %q}}]
contexts: [{name: test, context: {cluster: test, user: admin}}]
current-context: test
`, url, c.ca.file, secret)
	if err := os.WriteFile(c.Kubeconfig, []byte(kubeconfig), 0o600); err != nil {
		return err
	}
	var err error
	if c.Config, err = clientcmd.BuildConfigFromFlags("", c.Kubeconfig); err != nil {
		return err
	}
	c.Config.QPS = -1
	if c.Client, err = kubernetes.NewForConfig(c.Config); err != nil {
		return err
	}
	key := c.ca.key("apiserver")
	args := []string{
		"--etcd-servers=" + loopback("http", etcd),
		"--service-cluster-ip-range=" + c.options.ServiceCIDR, "--bind-address=127.0.0.1", "--advertise-address=127.0.0.1",
		"--secure-port=" + strconv.Itoa(port), "--tls-cert-file=" + c.ca.cert("apiserver"), "--tls-private-key-file=" + key,
		"--service-account-key-file=" + key, "--service-account-signing-key-file=" + key, "--service-account-issuer=https://kubernetes.default.svc",
		"--token-auth-file=" + tokens, "--authorization-mode=RBAC", "--cert-dir=" + c.options.Dir,
	}
	if c.options.APIOnly {
		args = append(args, "--disable-admission-plugins=ServiceAccount")
	}
	return c.run(ctx, url+"/readyz", "kube-apiserver", args...)
}

func (c *ControlPlane) controllers(ctx context.Context, manager, scheduler int) error {
	common := func(port int) []string {
		return []string{
			"--kubeconfig=" + c.Kubeconfig, "--authentication-kubeconfig=" + c.Kubeconfig, "--authorization-kubeconfig=" + c.Kubeconfig,
			"--bind-address=127.0.0.1", "--secure-port=" + strconv.Itoa(port), "--leader-elect=false", "--cert-dir=" + c.options.Dir,
		}
	}
	err := c.run(ctx, loopback("https", manager)+"/healthz", "kube-controller-manager", append(common(manager),
		"--service-account-private-key-file="+c.ca.key("apiserver"), "--root-ca-file="+c.ca.file,
		"--use-service-account-credentials=false", "--kube-api-qps=200", "--kube-api-burst=400")...)
	if err != nil {
		return err
	}
	return c.run(ctx, loopback("https", scheduler)+"/healthz", "kube-scheduler", common(scheduler)...)
}

// run starts a program and waits until url answers 200.
func (c *ControlPlane) run(ctx context.Context, url, name string, args ...string) error {
	p, err := start(filepath.Join(c.options.Bin, name), filepath.Join(c.options.Dir, name+".log"), c.environment(), args...)
	if err != nil {
		return err
	}
	c.processes = append(c.processes, p)
	began := time.Now()
	if err := p.ready(ctx, url, func(status int) bool { return status == http.StatusOK }); err != nil {
		return err
	}
	c.options.Notify(fmt.Sprintf("%s is ready after %.1f s", name, time.Since(began).Seconds()))
	return nil
}

func (c *ControlPlane) environment() []string {
	return append(os.Environ(), "KUBECONFIG="+c.Kubeconfig, "HOME="+c.options.Dir)
}

func loopback(scheme string, port int) string {
	return scheme + "://" + net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
}

// freePorts returns n ports that were free at one moment. A program that finds its port taken
// ends, and the error has its log.
func freePorts(n int) ([]int, error) {
	ports := make([]int, n)
	for i := range ports {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close() // after all were taken, so that they differ
		ports[i] = l.Addr().(*net.TCPAddr).Port
	}
	return ports, nil
}
