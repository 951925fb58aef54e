package appliance

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// certify writes cert.pem and key.pem with a certificate of the given serial number.
func certify(t *testing.T, dir string, serial int64) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(serial), NotAfter: time.Now().Add(time.Hour), DNSNames: []string{"localhost"}}
	der, err := x509.CreateCertificate(rand.Reader, c, c, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(dir, "key.pem"), string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})))
	writeFile(t, filepath.Join(dir, "cert.pem"), string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})))
}

// TestTLS checks requests over TLS and HTTP/2, a renewed certificate without a restart, and
// that an invalid certificate does not replace the last valid one.
func TestTLS(t *testing.T) {
	dir := t.TempDir()
	certify(t, dir, 7)
	s := start(t, `serve: tls: {certFile: "`+dir+`/cert.pem", keyFile: "`+dir+`/key.pem"}`)
	serial := func() int64 {
		c, err := tls.Dial("tcp", s.Addr().String(), &tls.Config{InsecureSkipVerify: true})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		return c.ConnectionState().PeerCertificates[0].SerialNumber.Int64()
	}
	if got := serial(); got != 7 {
		t.Fatalf("certificate %d", got)
	}
	r, err := visitor.Get(s.url + "/v1/models")
	if err != nil {
		t.Fatal(err)
	}
	r.Body.Close()
	if r.StatusCode != http.StatusOK || r.ProtoMajor != 2 || !strings.HasPrefix(s.Appliance.url(), "https://") {
		t.Errorf("%s over %s at %s", r.Status, r.Proto, s.Appliance.url())
	}
	certify(t, dir, 8)
	s.eventually(t, "the new certificate", func() bool { return serial() == 8 })
	writeFile(t, filepath.Join(dir, "cert.pem"), "nonsense")
	if r := s.latest(t, Rejected); !strings.Contains(r.Error, "serve.tls.certFile") || serial() != 8 {
		t.Errorf("%+v, certificate %d", r, serial())
	}
	if strings.Contains(s.log.String(), "PRIVATE KEY") {
		t.Error("the key is in the log")
	}
}

// TestMove changes serve.port and serve.host while a stream runs: the stream ends as usual, the old address is closed
// and the new one is served. A port that is in use is refused, and the old one stays.
func TestMove(t *testing.T) {
	s := start(t, "")
	wait := s.streams(t, 2)
	old := s.url
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(free.Addr().String())
	text := strings.Replace(profileText(s.model, ""), "port: 0", "port: "+port, 1)
	s.write(t, "rename", text)
	if r := s.latest(t, Rejected); !strings.Contains(r.Error, "serve.port: port "+port) {
		t.Errorf("%+v", r)
	}
	if code := s.status(t, "/health"); code != 200 {
		t.Errorf("the old address: %d", code)
	}
	if err := free.Close(); err != nil {
		t.Fatal(err)
	}
	s.Reload(TriggerSignal)
	s.waitApplied(t, 1)
	s.url = "http://127.0.0.1:" + port
	if code := s.status(t, "/health"); code != 200 {
		t.Errorf("the new address: %d", code)
	}
	if c, err := net.Dial("tcp", strings.TrimPrefix(old, "http://")); err == nil {
		c.Close()
		t.Error("the old address is still served")
	}
	wait()
	s.write(t, "rename", strings.Replace(text, `host: "127.0.0.1"`, `host: "0.0.0.0"`, 1))
	s.waitApplied(t, 2)
	if code := s.status(t, "/health"); code != 200 {
		t.Errorf("all addresses of the same port: %d", code)
	}
	s.write(t, "rename", strings.Replace(text, `host: "127.0.0.1"`, `host: "192.0.2.1"`, 1))
	if r := s.latest(t, Rejected); !strings.Contains(r.Error, "serve.host") {
		t.Errorf("%+v", r)
	}
	if code := s.status(t, "/health"); code != 200 {
		t.Errorf("after a host that is not here: %d", code)
	}
}

// TestLogFormat changes log.format in a running server.
func TestLogFormat(t *testing.T) {
	s := start(t, "")
	s.edit(t, "rename", `log: format: "json"`)
	s.waitApplied(t, 1)
	s.eventually(t, "a line of JSON", func() bool { return strings.Contains(s.log.String(), `{"time":`) })
}
