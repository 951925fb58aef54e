package routers

import (
	"context"
	"fmt"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extproc "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	v1 "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"

	"vapp.dev/tests/kubernetes/controlplane"
)

// TestEndpointPicker asks the endpoint picker of the Gateway API Inference Extension for the pod of 200 requests, while one
// pod holds 64 streams, and sends each where it says: at least 80 % go to the other pod.
func TestEndpointPicker(t *testing.T) {
	epp, port := program(t, "EPP"), fleet(t)
	api := apiServer(t)
	for i, h := range hosts {
		pod(t, api, fmt.Sprint("vapp-", i), h)
	}
	pool(t, api, "vapp", port)
	grpcPort, health, metrics := freePort(t, "127.0.0.1"), freePort(t, "127.0.0.1"), freePort(t, "127.0.0.1")
	start(t, []string{"KUBECONFIG=" + api.Kubeconfig}, epp, "--pool-namespace=default", "--pool-name=vapp", "--secure-serving=false", "--metrics-endpoint-auth=false", "--tracing=false",
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
	occupy(t, busy, busy, 64, "")
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

// apiServer starts etcd and kube-apiserver from the folder KUBERNETES_BIN.
func apiServer(t *testing.T) *controlplane.ControlPlane {
	t.Helper()
	c, err := controlplane.Start(t.Context(), controlplane.Options{Bin: program(t, "KUBERNETES_BIN"), Dir: t.TempDir(), ServiceCIDR: "10.0.0.0/24", APIOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	await(t, "the namespace default is there", func() bool {
		_, err := c.Client.CoreV1().Namespaces().Get(t.Context(), "default", meta.GetOptions{})
		return err == nil
	})
	return c
}

// pod creates a pod that is ready at an address.
func pod(t *testing.T, c *controlplane.ControlPlane, name, ip string) {
	t.Helper()
	p := &v1.Pod{
		ObjectMeta: meta.ObjectMeta{Name: name, Labels: map[string]string{"app": "vapp"}},
		Spec:       v1.PodSpec{NodeName: "node", Containers: []v1.Container{{Name: "vapp", Image: "vapp"}}},
	}
	p, err := c.Client.CoreV1().Pods("default").Create(t.Context(), p, meta.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	p.Status = v1.PodStatus{Phase: v1.PodRunning, PodIP: ip, PodIPs: []v1.PodIP{{IP: ip}}, Conditions: []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue}}}
	if _, err := c.Client.CoreV1().Pods("default").UpdateStatus(t.Context(), p, meta.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// pool installs the definitions of the picker's module and creates an InferencePool of the pods.
func pool(t *testing.T, c *controlplane.ControlPlane, name, port string) {
	t.Helper()
	apply := func(text string, args ...string) {
		t.Helper()
		if _, err := c.Kubectl(t.Context(), text, args...); err != nil {
			t.Fatal(err)
		}
	}
	apply("", "apply", "--server-side", "-f", program(t, "EPP_MODULE")+"/config/crd/bases")
	apply("", "wait", "--for=condition=Established", "--timeout=60s", "crd", "--all")
	apply(fmt.Sprintf(`apiVersion: inference.networking.k8s.io/v1
kind: InferencePool
metadata: {name: %s}
spec: {selector: {matchLabels: {app: vapp}}, targetPorts: [{number: %s}], endpointPickerRef: {name: picker, port: {number: 9002}}}
`, name, port), "apply", "-f", "-")
}
