package appliance

import (
	"crypto/tls"
	"log/slog"
	"net"
	"net/http"
	"time"
)

// maxHeader is the maximum size of a request's header in bytes.
const maxHeader = 64 << 10

// newHTTP returns the HTTP server. It reads the certificate from a.live for each
// connection, since it may change.
func (a *Appliance) newHTTP() *http.Server {
	t := a.prepared.Profile.Serve.Timeouts
	s := &http.Server{
		Handler: a.countRequests(a.server.Handler()), ReadHeaderTimeout: time.Duration(t.Header), IdleTimeout: time.Duration(t.Idle),
		MaxHeaderBytes: maxHeader, ErrorLog: slog.NewLogLogger(a.log.Handler(), slog.LevelDebug),
	}
	if a.prepared.Profile.Serve.TLS != nil {
		s.TLSConfig = &tls.Config{
			MinVersion:     tls.VersionTLS12,
			CipherSuites:   ciphers,
			GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return a.live.Load().cert, nil },
		}
	}
	return s
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

// serve serves the listener until the server is closed.
func (a *Appliance) serve(s *http.Server) error {
	if s.TLSConfig != nil {
		return s.ServeTLS(a.listener, "", "")
	}
	return s.Serve(a.listener)
}

// scheme returns the scheme of the server's URLs.
func (a *Appliance) scheme() string {
	if a.prepared.Profile.Serve.TLS != nil {
		return "https"
	}
	return "http"
}
