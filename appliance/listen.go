package appliance

import (
	"crypto/tls"
	"log/slog"
	"net/http"
	"time"

	"vapp.dev/schema"
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
			GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return a.live.Load().cert, nil },
		}
	}
	return s
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

// readCertificate reads the profile's certificate and key, which must fit each
// other. What was read goes to hash too.
func (l *live) readCertificate(p *schema.Profile, hash func([]byte) (int, error)) error {
	t := p.Serve.TLS
	if t == nil {
		return nil
	}
	cert, key := p.Path(t.CertFile), p.Path(t.KeyFile)
	l.files = append(l.files, cert, key)
	chain, err := readSmall(cert)
	if err != nil {
		return p.Reject("serve.tls.certFile", "%v", err)
	}
	secret, err := readSmall(key)
	if err != nil {
		return p.Reject("serve.tls.keyFile", "%v", err)
	}
	pair, err := tls.X509KeyPair(chain, secret)
	if err != nil {
		return p.Reject("serve.tls.certFile", "%s and %s are no certificate with its key: %v", t.CertFile, t.KeyFile, err)
	}
	l.cert = &pair
	for _, b := range [][]byte{chain, secret} {
		_, _ = hash(b) // a hash never fails
	}
	return nil
}
