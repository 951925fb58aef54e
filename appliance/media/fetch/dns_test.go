package fetch

import (
	"context"
	"net"
	"net/netip"
	"sync"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
)

// nameServer answers questions about addresses on a port of this machine. The n-th question for
// the IPv4 addresses of a name gets the n-th of its answers, and later ones the last.
type nameServer struct {
	conn net.PacketConn

	mu      sync.Mutex
	answers map[string][][]netip.Addr // by name with the dot of the root
	aliases map[string]string
	asked   map[string]int
}

func newNameServer(t *testing.T) *nameServer {
	conn, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &nameServer{conn: conn, answers: map[string][][]netip.Addr{}, aliases: map[string]string{}, asked: map[string]int{}}
	t.Cleanup(func() { conn.Close() })
	go s.serve()
	return s
}

// set gives a name its answers; each is a list of addresses.
func (s *nameServer) set(name string, answers ...[]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answers[name+"."], s.asked[name+"."] = nil, 0
	for _, list := range answers {
		var out []netip.Addr
		for _, a := range list {
			out = append(out, netip.MustParseAddr(a))
		}
		s.answers[name+"."] = append(s.answers[name+"."], out)
	}
}

// resolver asks s alone.
func (s *nameServer) resolver() *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "udp4", s.conn.LocalAddr().String())
	}}
}

func (s *nameServer) serve() {
	buf := make([]byte, 1500)
	for {
		n, from, err := s.conn.ReadFrom(buf)
		if err != nil {
			return
		}
		var m dnsmessage.Message
		if m.Unpack(buf[:n]) != nil || len(m.Questions) != 1 {
			continue
		}
		s.answer(&m)
		if out, err := m.Pack(); err == nil {
			_, _ = s.conn.WriteTo(out, from)
		}
	}
}

// answer turns a question into its answer.
func (s *nameServer) answer(m *dnsmessage.Message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := m.Questions[0]
	m.Header.Response, m.Header.RecursionAvailable, m.Additionals = true, true, nil
	name := q.Name.String()
	if alias, ok := s.aliases[name]; ok {
		target := dnsmessage.MustNewName(alias)
		m.Answers = append(m.Answers, dnsmessage.Resource{
			Header: dnsmessage.ResourceHeader{Name: q.Name, Type: dnsmessage.TypeCNAME, Class: dnsmessage.ClassINET},
			Body:   &dnsmessage.CNAMEResource{CNAME: target},
		})
		name = alias
	}
	lists, known := s.answers[name]
	if !known {
		m.Header.RCode = dnsmessage.RCodeNameError
		return
	}
	n := min(s.asked[name], len(lists)-1)
	if q.Type == dnsmessage.TypeA {
		s.asked[name]++
	}
	for _, a := range lists[n] {
		h := dnsmessage.ResourceHeader{Name: dnsmessage.MustNewName(name), Class: dnsmessage.ClassINET}
		switch {
		case a.Is4() && q.Type == dnsmessage.TypeA:
			h.Type = dnsmessage.TypeA
			m.Answers = append(m.Answers, dnsmessage.Resource{Header: h, Body: &dnsmessage.AResource{A: a.As4()}})
		case a.Is6() && q.Type == dnsmessage.TypeAAAA:
			h.Type = dnsmessage.TypeAAAA
			m.Answers = append(m.Answers, dnsmessage.Resource{Header: h, Body: &dnsmessage.AAAAResource{AAAA: a.As16()}})
		}
	}
}
