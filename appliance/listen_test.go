package appliance

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
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
