package appliance

import (
	"crypto/tls"
	"log/slog"
	"net"
	"net/http"
	"time"
)

// maxHeader bounds the head of a request, in bytes.
const maxHeader = 64 << 10

// newHTTP is the server of connections; what may change later is read from
// a.live.
func (a *Appliance) newHTTP() *http.Server {
	t := a.prepared.Profile.Serve.Timeouts
	s := &http.Server{
		Handler: a.counted(a.server.Handler()), ReadHeaderTimeout: time.Duration(t.Header), IdleTimeout: time.Duration(t.Idle),
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

// ciphers of TLS 1.2: an ephemeral key and authenticated encryption. Go's own list has CBC
// modes too. Those of TLS 1.3 are not configurable.
var ciphers = []uint16{
	tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
	tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384, tls.TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
	tls.TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256, tls.TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
}

// loopback reports whether only this machine reaches the server.
func (a *Appliance) loopback() bool {
	at, ok := a.Addr().(*net.TCPAddr)
	return ok && at.IP.IsLoopback()
}

// warnOpen logs that the server answers without a key on an address that other machines
// reach: at start, and when a reload removes the last key.
func (a *Appliance) warnOpen(was, is *live) {
	if is.keyed() || a.loopback() || was != nil && !was.keyed() {
		return
	}
	a.log.Warn("no API keys: every client that reaches this address may use the server; set serve.apiKeys, or serve.host to 127.0.0.1", "address", a.Addr().String())
}

// counted keeps handling.
func (a *Appliance) counted(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a.handling.Add(1)
		defer a.handling.Add(-1)
		h.ServeHTTP(w, r)
	})
}

// serve answers on the listener until the server is closed.
func (a *Appliance) serve(s *http.Server) error {
	if s.TLSConfig != nil {
		return s.ServeTLS(a.listener, "", "")
	}
	return s.Serve(a.listener)
}

// scheme is that of the server's addresses.
func (a *Appliance) scheme() string {
	if a.prepared.Profile.Serve.TLS != nil {
		return "https"
	}
	return "http"
}
