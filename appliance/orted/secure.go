package orted

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"time"
)

// label names the secret that both sides derive from their TLS session.
const label = "vapp orted"

// greetTime is how long a connection may take to authenticate.
const greetTime = 10 * time.Second

// secure makes a connection encrypted and authenticated, and leaves its deadline set. The leader's certificate is made for the connection
// and proves nothing; each side proves by an HMAC over the session's own secret that it has the key, so that a program
// between the two has another session and no proof. The worker proves first: a stranger learns nothing from the leader.
func secure(ctx context.Context, c net.Conn, key []byte, leader bool) (*tls.Conn, error) {
	if err := c.SetDeadline(time.Now().Add(greetTime)); err != nil {
		return nil, err
	}
	var t *tls.Conn
	if leader {
		own, err := certificate()
		if err != nil {
			return nil, err
		}
		t = tls.Server(c, &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{own}, SessionTicketsDisabled: true})
	} else {
		t = tls.Client(c, &tls.Config{MinVersion: tls.VersionTLS13, InsecureSkipVerify: true}) // the key is what counts
	}
	if err := t.HandshakeContext(ctx); err != nil {
		return nil, err
	}
	state := t.ConnectionState()
	secret, err := state.ExportKeyingMaterial(label, nil, sha256.Size)
	if err != nil {
		return nil, err
	}
	proof := func(side string) []byte {
		h := hmac.New(sha256.New, key)
		h.Write([]byte(side))
		h.Write(secret)
		return h.Sum(nil)
	}
	check := func(side string) error {
		got := make([]byte, sha256.Size)
		if _, err := io.ReadFull(t, got); err != nil {
			return fmt.Errorf("%w: %v", errKey, err)
		}
		if !hmac.Equal(got, proof(side)) {
			return errKey
		}
		return nil
	}
	if leader {
		if err := check("worker"); err != nil {
			return nil, err
		}
		_, err = t.Write(proof("leader"))
		return t, err
	}
	if _, err := t.Write(proof("worker")); err != nil {
		return nil, err
	}
	return t, check("leader")
}

// errKey is an authentication that failed.
var errKey = errors.New("the other side does not prove that it has the same key (VAPP_RANKS_KEY, parallel.key)")

// certificate returns a new certificate with its key.
func certificate() (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	t := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, t, t, key.Public(), key)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, err
}
