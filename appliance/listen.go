package appliance

import (
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"vapp.dev/schema"
)

// maxHeader is the maximum size of a request's header in bytes.
const maxHeader = 64 << 10

// newHTTP returns the HTTP server. It reads the certificate from a.live for each
// connection, since it may change.
func (a *Appliance) newHTTP() *http.Server {
	t := a.prepared().Profile.Serve.Timeouts
	s := &http.Server{
		Handler: a.countRequests(a.server.Handler()), ReadHeaderTimeout: time.Duration(t.Header), IdleTimeout: time.Duration(t.Idle),
		MaxHeaderBytes: maxHeader, ErrorLog: slog.NewLogLogger(a.log.Handler(), slog.LevelDebug),
	}
	if a.prepared().Profile.Serve.TLS != nil {
		s.TLSConfig = &tls.Config{
			MinVersion:     tls.VersionTLS12,
			CipherSuites:   ciphers,
			GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return a.live.Load().cert, nil },
		}
	}
	return s
}

// listen opens the listener of a profile.
func listen(p *schema.Profile) (net.Listener, error) {
	l, err := net.Listen("tcp", net.JoinHostPort(p.Serve.Host, strconv.Itoa(p.Serve.Port)))
	if err != nil {
		return nil, listenError(p, err)
	}
	return l, nil
}

// listenError returns the error of listening at the profile's field to change, with the flag and
// the cause as far as the system reports it.
func listenError(p *schema.Profile, err error) error {
	host, port := p.Serve.Host, p.Serve.Port
	var unknown *net.DNSError
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		at, _ := netip.ParseAddr(host) // a name: every address
		who, free := PortHolder(at, port)
		if who != "" {
			who = " by " + who
		}
		return p.Reject("serve.port", "port %d of %s is in use%s; start with --port %d, set serve.port, or stop the other server", port, host, who, free)
	case errors.Is(err, syscall.EACCES):
		return p.Reject("serve.port", "this user may not listen on port %d, as on most ports below 1024; start with --port %d, set serve.port, or give the program CAP_NET_BIND_SERVICE", port, unprivileged(port))
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return p.Reject("serve.host", "%s is no address of this machine, which has %s; start with --host 0.0.0.0 for all of them, or set serve.host", host, localAddresses())
	case errors.As(err, &unknown):
		return p.Reject("serve.host", "%q is no address and no name that this machine can resolve; start with --host 0.0.0.0 for all its addresses, or set serve.host", host)
	}
	return p.Reject("serve.port", "cannot listen on %s: %v; start with another --port or --host, or set serve.port or serve.host", net.JoinHostPort(host, strconv.Itoa(port)), reasonOf(err))
}

// unprivileged returns a port to use in place of a privileged one.
func unprivileged(port int) int {
	if port == 443 {
		return 8443
	}
	return 8000
}

// localAddresses lists addresses of this machine.
func localAddresses() string {
	list, err := net.InterfaceAddrs()
	if err != nil {
		return "others"
	}
	const most = 6
	var out []string
	for _, a := range list {
		if n, ok := a.(*net.IPNet); ok && !n.IP.IsLinkLocalUnicast() && len(out) < most {
			out = append(out, n.IP.String())
		}
	}
	if len(out) == 0 {
		return "none"
	}
	return strings.Join(out, ", ")
}

// ciphers lists the cipher suites of TLS 1.2: those with ephemeral keys and authenticated
// encryption. Go's default list has CBC modes too. The suites of TLS 1.3 are fixed.
var ciphers = []uint16{
	tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
	tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384, tls.TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
	tls.TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256, tls.TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
}

// loopback reports whether the server listens on a loopback address.
func (a *Appliance) loopback() bool {
	at, ok := a.Addr().(*net.TCPAddr)
	return ok && at.IP.IsLoopback()
}

// warnOpen warns if other machines can use the server without a key: at start, and when a
// reload removes the guard.
func (a *Appliance) warnOpen(was, is *live) {
	if is.keyed() || a.loopback() || was != nil && !was.keyed() {
		return
	}
	a.log.Warn("no API keys: every client that reaches this address may use the server; set serve.apiKeys, or serve.host to 127.0.0.1", "address", a.Addr().String())
}

// countRequests counts the running handlers in handling.
func (a *Appliance) countRequests(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a.handling.Add(1)
		defer a.handling.Add(-1)
		h.ServeHTTP(w, r)
	})
}

// scheme returns the scheme of the server's URLs.
func (a *Appliance) scheme() string {
	if a.prepared().Profile.Serve.TLS != nil {
		return "https"
	}
	return "http"
}

// reasonOf returns the system's reason in a network error, without address and verb.
func reasonOf(err error) error {
	var op *net.OpError
	var sys *os.SyscallError
	switch {
	case errors.As(err, &sys):
		return sys.Err
	case errors.As(err, &op):
		return op.Err
	}
	return err
}
