package node

import (
	"net"
	"strings"

	core "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	listers "k8s.io/client-go/listers/core/v1"
	slicelisters "k8s.io/client-go/listers/discovery/v1"

	"golang.org/x/net/dns/dnsmessage"
)

// domain is the cluster's; "svc" is its part for Services.
const domain = "cluster.local"

// dns answers queries for the names of Services and of pods with a hostname, by UDP.
type dns struct {
	conn     net.PacketConn
	services listers.ServiceLister
	slices   slicelisters.EndpointSliceLister
}

func newDNS(n *Network, f informers.SharedInformerFactory) (*dns, error) {
	conn, err := net.ListenPacket("udp", net.JoinHostPort(n.gateway.String(), "53"))
	if err != nil {
		return nil, err
	}
	d := &dns{conn: conn, services: f.Core().V1().Services().Lister(), slices: f.Discovery().V1().EndpointSlices().Lister()}
	go d.serve()
	return d, nil
}

func (d *dns) serve() {
	buf := make([]byte, 1500)
	for {
		n, from, err := d.conn.ReadFrom(buf)
		if err != nil {
			return
		}
		if reply, err := d.answer(buf[:n]); err == nil {
			_, _ = d.conn.WriteTo(reply, from) // a lost answer is asked for again
		}
	}
}

func (d *dns) close() { d.conn.Close() }

// answer returns the reply to a query: A records, or no records for another type, or NXDOMAIN.
func (d *dns) answer(query []byte) ([]byte, error) {
	var p dnsmessage.Parser
	h, err := p.Start(query)
	if err != nil {
		return nil, err
	}
	q, err := p.Question()
	if err != nil {
		return nil, err
	}
	addrs := d.lookup(strings.TrimSuffix(q.Name.String(), "."))
	h.Response, h.Authoritative, h.RecursionAvailable = true, true, true
	if addrs == nil {
		h.RCode = dnsmessage.RCodeNameError
	}
	b := dnsmessage.NewBuilder(nil, h)
	if err := b.StartQuestions(); err != nil {
		return nil, err
	}
	if err := b.Question(q); err != nil {
		return nil, err
	}
	if err := b.StartAnswers(); err != nil {
		return nil, err
	}
	for _, a := range addrs {
		if q.Type != dnsmessage.TypeA || a.To4() == nil {
			continue
		}
		head := dnsmessage.ResourceHeader{Name: q.Name, Class: dnsmessage.ClassINET, TTL: 1}
		if err := b.AResource(head, dnsmessage.AResource{A: [4]byte(a.To4())}); err != nil {
			return nil, err
		}
	}
	return b.Finish()
}

// lookup returns the addresses of SERVICE.NAMESPACE.svc.cluster.local, or of one pod with
// HOSTNAME before it.
func (d *dns) lookup(name string) []net.IP {
	rest, ok := strings.CutSuffix(strings.ToLower(name), ".svc."+domain)
	part := strings.Split(rest, ".")
	if !ok || len(part) < 2 || len(part) > 3 {
		return nil
	}
	host := strings.Join(part[:len(part)-2], "")
	service, namespace := part[len(part)-2], part[len(part)-1]
	s, err := d.services.Services(namespace).Get(service)
	if err != nil {
		return nil
	}
	if host == "" && s.Spec.ClusterIP != core.ClusterIPNone {
		return []net.IP{net.ParseIP(s.Spec.ClusterIP)}
	}
	var out []net.IP
	list, _ := d.slices.EndpointSlices(namespace).List(labels.SelectorFromSet(labels.Set{discovery.LabelServiceName: service}))
	for _, sl := range list {
		for _, e := range sl.Endpoints {
			named := e.Hostname != nil && *e.Hostname == host
			if (host == "" || named) && (e.Conditions.Ready == nil || *e.Conditions.Ready) {
				out = append(out, net.ParseIP(e.Addresses[0]))
			}
		}
	}
	return out
}
