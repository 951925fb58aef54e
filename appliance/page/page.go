// Package page serves the HTML page at the root of a server: a chat, the plan, and the
// server's current figures. The page is one document with embedded style and scripts; it
// loads nothing except the server's API. The package must not import other packages of
// vapp. Start reading at Handler; talk.js is the chat, state.js the server's figures,
// markdown.js what becomes of a model's text.
package page

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
)

//go:embed page.html style.css *.js libs/*.js.gz
var files embed.FS

// scripts are the files of the page's script, in the order in which they run.
var scripts = []string{
	"dom.js", "code.js", "markdown.js", "store.js", "api.js", "layout.js", "settings.js", "images.js", "message.js", "talk.js", "chats.js", "state.js", "keys.js",
}

// library is a published file of an npm package, stored in libs in gzip's format.
type library struct {
	pack, version string
	path          string // in the package
	file          string // in libs, with .gz
	sum           string // SHA-256 of the file
}

// libraries are the vendored scripts. scripts/page-libs.sh fetches them again.
var libraries = []library{
	{"markdown-it", "14.3.3", "dist/markdown-it.min.js", "markdown-it.min.js", "494ba53db1aac9f676317dda7062bd9545b5f0bbe3f12b0ab1ab4f813825cfb0"},
	{"@highlightjs/cdn-assets", "11.12.0", "highlight.min.js", "highlight.min.js", "8ab71eb09c51f501e5e25157d9cff100e46cc29bcbfc744d0b746d451fca7f53"},
}

// document is the page as it is sent.
type document struct {
	text, packed []byte // packed is text in gzip's format
	policy       string
	tag          string // of the text, for ETag
}

// read returns an embedded file.
func read(name string) string {
	b, err := files.ReadFile(name)
	if err != nil {
		panic(err) // the lists above name a file that is not embedded
	}
	return string(b)
}

// script returns the scripts within one function, so that they share their names and the
// page has no globals of its own.
func script() string {
	var b strings.Builder
	b.WriteString("'use strict';\n(() => {\n")
	for _, name := range scripts {
		b.WriteString(read(name))
	}
	b.WriteString("})();\n")
	return b.String()
}

// published returns a library's file as its package has it.
func published(l library) string {
	z, err := gzip.NewReader(strings.NewReader(read("libs/" + l.file + ".gz")))
	if err != nil {
		panic(err) // scripts/page-libs.sh writes gzip's format
	}
	b, err := io.ReadAll(z)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// vendored returns a library's script without the line that names its source map.
func vendored(l library) string {
	text, _, _ := strings.Cut(published(l), "\n//# sourceMappingURL=")
	return text
}

// build returns the document. Its policy allows this style, these scripts, and requests to
// this server only, and refuses every conversion of a text to HTML or code.
func build() document {
	own, style, first := script(), read("style.css"), read("first.js")
	allowed := []string{digest(first)}
	var libs strings.Builder
	for _, l := range libraries {
		libs.WriteString("<script>" + vendored(l) + "</script>\n")
		allowed = append(allowed, digest(vendored(l)))
	}
	allowed = append(allowed, digest(own))
	text := strings.NewReplacer("/*FIRST*/", first, "/*STYLE*/", style, "<!--LIBRARIES-->", libs.String(), "/*SCRIPT*/", own).Replace(read("page.html"))
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, _ = z.Write([]byte(text)) // a bytes.Buffer returns no error
	_ = z.Close()
	sum := sha256.Sum256([]byte(text))
	return document{
		text: []byte(text), packed: packed.Bytes(), tag: base64.RawURLEncoding.EncodeToString(sum[:12]),
		policy: strings.Join([]string{
			"default-src 'none'", "script-src " + strings.Join(allowed, " "), "style-src " + digest(style), "connect-src 'self'",
			"img-src data:", "base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'",
			"require-trusted-types-for 'script'", "trusted-types 'none'",
		}, "; "),
	}
}

// built returns the document of this binary.
var built = sync.OnceValue(build)

func digest(s string) string {
	sum := sha256.Sum256([]byte(s))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}

// Handler returns the handler of the page. The page contains no secrets: its script
// requests the data with the key that the user enters.
func Handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { serve(w, r, built()) })
}

func serve(w http.ResponseWriter, r *http.Request, d document) {
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", d.policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cache-Control", "no-cache")
	h.Set("Vary", "Accept-Encoding")
	body, tag := d.text, strconv.Quote(d.tag)
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		body, tag = d.packed, strconv.Quote(d.tag+"-gzip")
		h.Set("Content-Encoding", "gzip")
	}
	h.Set("ETag", tag)
	if r.Header.Get("If-None-Match") == tag {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	// An error means that the client has disconnected.
	_, _ = w.Write(body)
}
