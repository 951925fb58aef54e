package node

import (
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"strconv"
	"sync"

	core "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	listers "k8s.io/client-go/listers/core/v1"
	slicelisters "k8s.io/client-go/listers/discovery/v1"
	"k8s.io/client-go/tools/cache"
)

// proxy forwards TCP connections to ClusterIPs, as kube-proxy does: to ready endpoints, or, where
// there is none, to those that are ending and still serve. A port without endpoints is closed.
type proxy struct {
	network  *Network
	services listers.ServiceLister
	slices   slicelisters.EndpointSliceLister

	mu     sync.Mutex
	ports  map[string]*forward // by address:port
	addrs  map[string]bool     // on the bridge
	closed bool
}

// forward is the listener of a port of a Service.
type forward struct {
	listener net.Listener
	mu       sync.Mutex
	backends []string
	next     int
}

func newProxy(n *Network, f informers.SharedInformerFactory) *proxy {
	services, slices := f.Core().V1().Services(), f.Discovery().V1().EndpointSlices()
	p := &proxy{
		network: n, services: services.Lister(), slices: slices.Lister(),
		ports: map[string]*forward{}, addrs: map[string]bool{},
	}
	changed := cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { p.update() }, UpdateFunc: func(any, any) { p.update() }, DeleteFunc: func(any) { p.update() },
	}
	services.Informer().AddEventHandler(changed)
	slices.Informer().AddEventHandler(changed)
	return p
}

// update opens, changes and closes ports as Services and EndpointSlices have them.
func (p *proxy) update() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return
	}
	services, _ := p.services.List(labels.Everything()) // a cache has no errors
	want := map[string][]string{}
	for _, s := range services {
		if s.Spec.ClusterIP == "" || s.Spec.ClusterIP == core.ClusterIPNone {
			continue
		}
		for _, port := range s.Spec.Ports {
			if port.Protocol == core.ProtocolTCP {
				if b := p.endpoints(s, port.Name); len(b) > 0 {
					want[net.JoinHostPort(s.Spec.ClusterIP, strconv.Itoa(int(port.Port)))] = b
				}
			}
		}
	}
	for at, f := range p.ports {
		if want[at] == nil {
			f.listener.Close()
			delete(p.ports, at)
		}
	}
	for at, backends := range want {
		f := p.ports[at]
		if f == nil {
			l, err := p.listen(at)
			if err != nil {
				fmt.Println("proxy of Services:", err) // not this range: the API server's own Service
				continue
			}
			f = &forward{listener: l}
			p.ports[at] = f
			go f.serve()
		}
		f.mu.Lock()
		f.backends = backends
		f.mu.Unlock()
	}
}

func (p *proxy) listen(at string) (net.Listener, error) {
	host, _, _ := net.SplitHostPort(at)
	if !p.addrs[host] {
		if err := ip("addr", "add", host+"/32", "dev", p.network.bridge); err != nil {
			return nil, err
		}
		p.addrs[host] = true
	}
	return net.Listen("tcp", at)
}

// endpoints returns the addresses of a Service's port.
func (p *proxy) endpoints(s *core.Service, port string) []string {
	slices_, _ := p.slices.EndpointSlices(s.Namespace).List(labels.SelectorFromSet(labels.Set{discovery.LabelServiceName: s.Name}))
	ready, ending := map[string]bool{}, map[string]bool{}
	for _, sl := range slices_ {
		for _, pt := range sl.Ports {
			if pt.Port == nil || pt.Name == nil || *pt.Name != port {
				continue
			}
			for _, e := range sl.Endpoints {
				at := net.JoinHostPort(e.Addresses[0], strconv.Itoa(int(*pt.Port)))
				switch c := e.Conditions; {
				case c.Ready == nil || *c.Ready:
					ready[at] = true
				case c.Serving != nil && *c.Serving && c.Terminating != nil && *c.Terminating:
					ending[at] = true
				}
			}
		}
	}
	if len(ready) == 0 {
		ready = ending
	}
	return slices.Sorted(maps.Keys(ready))
}

func (f *forward) serve() {
	for {
		c, err := f.listener.Accept()
		if err != nil {
			return
		}
		f.mu.Lock()
		backend := f.backends[f.next%len(f.backends)]
		f.next++
		f.mu.Unlock()
		go connect(c.(*net.TCPConn), backend)
	}
}

// connect copies between a client and a backend until both have ended. If the backend refuses,
// the client's connection is reset, as it is where packets are redirected.
func connect(client *net.TCPConn, backend string) {
	defer client.Close()
	c, err := net.Dial("tcp", backend)
	if err != nil {
		_ = client.SetLinger(0)
		return
	}
	server := c.(*net.TCPConn)
	defer server.Close()
	var wg sync.WaitGroup
	for _, d := range [][2]*net.TCPConn{{client, server}, {server, client}} {
		wg.Go(func() {
			if _, err := io.Copy(d[1], d[0]); err != nil {
				_ = d[1].SetLinger(0)
				d[1].Close()
				return
			}
			_ = d[1].CloseWrite()
		})
	}
	wg.Wait()
}

func (p *proxy) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for _, f := range p.ports {
		f.listener.Close()
	}
}
