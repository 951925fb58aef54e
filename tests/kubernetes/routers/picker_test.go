package routers

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extproc "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// TestEndpointPicker asks the endpoint picker of the Gateway API Inference Extension for the pod of 200 requests, while one
// pod holds 64 streams, and sends each where it says: at least 80 % go to the other pod.
func TestEndpointPicker(t *testing.T) {
	epp, port := program(t, "EPP"), fleet(t)
	api := apiServer(t)
	for i, h := range hosts {
		api.pod(fmt.Sprint("vapp-", i), h)
	}
	api.pool("vapp", port)
	grpcPort, health, metrics := freePort(t, "127.0.0.1"), freePort(t, "127.0.0.1"), freePort(t, "127.0.0.1")
	start(t, []string{"KUBECONFIG=" + api.kubeconfig}, epp, "--pool-namespace=default", "--pool-name=vapp", "--secure-serving=false", "--metrics-endpoint-auth=false", "--tracing=false",
		"--grpc-port="+grpcPort, "--grpc-health-port="+health, "--metrics-port="+metrics)
	conn, err := grpc.NewClient("127.0.0.1:"+grpcPort, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	picker := extproc.NewExternalProcessorClient(conn)
	// Ready: it knows both pods, so requests of idle pods go to each of them.
	known := map[string]bool{}
	var last error
	t.Cleanup(func() { t.Logf("the last refusal of the picker while it started: %v", last) })
	await(t, "the picker knows both pods", func() bool {
		to, err := pick(picker, body(fmt.Sprint("warm ", time.Now().UnixNano()), 1, false))
		if err == nil {
			known[to] = true
		} else {
			last = err
		}
		return len(known) == len(hosts)
	})
	busy := "http://" + hosts[0] + ":" + port
	occupy(t, busy, busy, 64)
	time.Sleep(time.Second) // twenty of the picker's scrapes: what it decides by is no event outside it
	counts := map[string]int{}
	for i := range 200 {
		request := body(fmt.Sprintf("%d green bottles", i), 1, false)
		to, err := pick(picker, request)
		if err != nil {
			t.Fatal(err)
		}
		counts[to]++
		if to != hosts[0]+":"+port { // the other pod would answer after its streams
			if err := complete("http://"+to, request); err != nil {
				t.Fatal(err)
			}
		}
	}
	t.Logf("requests by endpoint: %v", counts)
	if counts[hosts[1]+":"+port] < 160 || len(counts) > 2 {
		t.Errorf("%v: fewer than 160 of 200 went to the idle pod", counts)
	}
}

// pick sends a request's headers and body through ext_proc, as Envoy does, and returns the endpoint.
func pick(c extproc.ExternalProcessorClient, request []byte) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	s, err := c.Process(ctx)
	if err != nil {
		return "", err
	}
	var headers []*core.HeaderValue
	for _, h := range [][2]string{{":method", "POST"}, {":path", "/v1/completions"}, {"content-type", "application/json"}, {"x-request-id", fmt.Sprint(time.Now().UnixNano())}} {
		headers = append(headers, &core.HeaderValue{Key: h[0], RawValue: []byte(h[1])})
	}
	for _, m := range []*extproc.ProcessingRequest{
		{Request: &extproc.ProcessingRequest_RequestHeaders{RequestHeaders: &extproc.HttpHeaders{Headers: &core.HeaderMap{Headers: headers}}}},
		{Request: &extproc.ProcessingRequest_RequestBody{RequestBody: &extproc.HttpBody{Body: request, EndOfStream: true}}},
	} {
		if err := s.Send(m); err != nil {
			return "", err
		}
	}
	for {
		r, err := s.Recv()
		if err != nil {
			return "", err
		}
		if i := r.GetImmediateResponse(); i != nil {
			return "", fmt.Errorf("the picker refuses: %v %s", i.GetStatus(), i.GetBody())
		}
		for _, h := range r.GetRequestHeaders().GetResponse().GetHeaderMutation().GetSetHeaders() {
			if h.GetHeader().GetKey() == "x-gateway-destination-endpoint" {
				return string(h.GetHeader().GetRawValue()), nil
			}
		}
	}
}

// api is an API server.
type api struct {
	t                      *testing.T
	url, token, kubeconfig string
	client                 *http.Client
}

// apiServer starts etcd and kube-apiserver from the folder KUBERNETES_BIN on loopback.
func apiServer(t *testing.T) *api {
	t.Helper()
	bin, dir := program(t, "KUBERNETES_BIN"), t.TempDir()
	etcd, peer, port := freePort(t, "127.0.0.1"), freePort(t, "127.0.0.1"), freePort(t, "127.0.0.1")
	start(t, nil, filepath.Join(bin, "etcd"), "--data-dir="+filepath.Join(dir, "etcd"), "--listen-client-urls=http://127.0.0.1:"+etcd,
		"--advertise-client-urls=http://127.0.0.1:"+etcd, "--listen-peer-urls=http://127.0.0.1:"+peer, "--unsafe-no-fsync")
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	a := &api{t: t, url: "https://127.0.0.1:" + port, token: "admin", kubeconfig: filepath.Join(dir, "kubeconfig")}
	a.client = &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} // its certificate is its own
	account, tokens := filepath.Join(dir, "account.key"), filepath.Join(dir, "tokens.csv")
	for path, text := range map[string][]byte{
		account: pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}),
		tokens:  []byte("admin,admin,1,system:masters\n"),
		a.kubeconfig: fmt.Appendf(nil, `apiVersion: v1
kind: Config
clusters: [{name: test, cluster: {server: %q, insecure-skip-tls-verify: true}}]
users: [{name: admin, user: {token: admin}}]
contexts: [{name: test, context: {cluster: test, user: admin}}]
current-context: test
`, a.url),
	} {
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	start(t, nil, filepath.Join(bin, "kube-apiserver"), "--etcd-servers=http://127.0.0.1:"+etcd, "--bind-address=127.0.0.1", "--advertise-address=127.0.0.1", "--secure-port="+port,
		"--cert-dir="+dir, "--service-cluster-ip-range=10.0.0.0/24", "--service-account-issuer=https://test", "--service-account-key-file="+account,
		"--service-account-signing-key-file="+account, "--token-auth-file="+tokens, "--authorization-mode=RBAC", "--disable-admission-plugins=ServiceAccount")
	await(t, "the API server is ready", func() bool { return a.call("GET", "/readyz", "", nil) == nil })
	await(t, "the namespace default is there", func() bool { return a.call("GET", "/api/v1/namespaces/default", "", nil) == nil })
	return a
}

// call sends an object, or its text.
func (a *api) call(method, path, kind string, object any) error {
	b, is := object.([]byte)
	if !is {
		var err error
		if b, err = json.Marshal(object); err != nil {
			return err
		}
	}
	q, err := http.NewRequest(method, a.url+path, bytes.NewReader(b))
	if err != nil {
		return err
	}
	q.Header.Set("Authorization", "Bearer "+a.token)
	q.Header.Set("Content-Type", kind)
	r, err := a.client.Do(q)
	if err != nil {
		return err
	}
	defer r.Body.Close()
	if text, _ := io.ReadAll(r.Body); r.StatusCode/100 != 2 {
		return fmt.Errorf("%s %s: %s %s", method, path, r.Status, text)
	}
	return nil
}

// pod creates a pod that is ready at an address.
func (a *api) pod(name, ip string) {
	a.t.Helper()
	type m = map[string]any
	err := a.call("POST", "/api/v1/namespaces/default/pods", "application/json", m{
		"metadata": m{"name": name, "labels": m{"app": "vapp"}}, "spec": m{"nodeName": "node", "containers": []m{{"name": "vapp", "image": "vapp"}}}})
	if err != nil {
		a.t.Fatal(err)
	}
	err = a.call("PATCH", "/api/v1/namespaces/default/pods/"+name+"/status", "application/merge-patch+json", m{
		"status": m{"phase": "Running", "podIP": ip, "podIPs": []m{{"ip": ip}}, "conditions": []m{{"type": "Ready", "status": "True"}}}})
	if err != nil {
		a.t.Fatal(err)
	}
}

// pool installs the definitions of the picker's module and creates an InferencePool of the pods.
func (a *api) pool(name, port string) {
	a.t.Helper()
	type m = map[string]any
	files, err := filepath.Glob(filepath.Join(program(a.t, "EPP_MODULE"), "config/crd/bases/*.yaml"))
	if err != nil || len(files) == 0 {
		a.t.Fatalf("no definitions in EPP_MODULE: %v", err)
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			a.t.Fatal(err)
		}
		if err := a.call("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", "application/yaml", text); err != nil {
			a.t.Fatal(err)
		}
	}
	number, err := strconv.Atoi(port)
	if err != nil {
		a.t.Fatal(err)
	}
	object := m{
		"apiVersion": "inference.networking.k8s.io/v1", "kind": "InferencePool", "metadata": m{"name": name},
		"spec": m{"selector": m{"matchLabels": m{"app": "vapp"}}, "targetPorts": []m{{"number": number}}, "endpointPickerRef": m{"name": "picker", "port": m{"number": 9002}}},
	}
	await(a.t, "InferencePool is served", func() bool {
		err = a.call("POST", "/apis/inference.networking.k8s.io/v1/namespaces/default/inferencepools", "application/json", object)
		return err == nil || !strings.Contains(err.Error(), "404")
	})
	if err != nil {
		a.t.Fatal(err)
	}
}
