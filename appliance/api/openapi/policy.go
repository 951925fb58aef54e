package openapi

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"strings"
)

// Policy returns the Content-Security-Policy of a page. It allows the page's own style
// and script and requests to this server, and forbids framing.
func Policy(page []byte) string {
	list := []string{"default-src 'none'", "connect-src 'self'", "img-src data:", "base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'"}
	for _, tag := range []string{"style", "script"} {
		_, rest, found := bytes.Cut(page, []byte("<"+tag+">"))
		if inside, _, closed := bytes.Cut(rest, []byte("</"+tag+">")); found && closed {
			sum := sha256.Sum256(inside)
			list = append(list, tag+"-src 'sha256-"+base64.StdEncoding.EncodeToString(sum[:])+"'")
		}
	}
	return strings.Join(list, "; ")
}
