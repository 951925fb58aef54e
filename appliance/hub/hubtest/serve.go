package hubtest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// serve answers the API and the URLs of files.
func (h *Hub) serve(w http.ResponseWriter, r *http.Request) {
	f := h.note(r, false)
	if f.instead(w) {
		return
	}
	path := strings.TrimPrefix(r.URL.EscapedPath(), "/")
	if rest, ok := strings.CutPrefix(path, "api/models/"); ok {
		name, revision, _ := strings.Cut(rest, "/revision/")
		h.list(w, r, f, name, revision)
		return
	}
	name, rest, ok := strings.Cut(path, "/resolve/")
	revision, file, _ := strings.Cut(rest, "/")
	repo, commit := h.find(name, revision)
	switch {
	case !ok || repo == nil:
		fail(w, http.StatusNotFound, "RepoNotFound")
		return
	case (repo.Gated || repo.Private) && r.Header.Get("Authorization") != "Bearer "+repo.Token:
		fail(w, http.StatusUnauthorized, "GatedRepo")
		return
	}
	file, _ = url.PathUnescape(file)
	content, ok := repo.Trees[commit][file]
	if !ok {
		fail(w, http.StatusNotFound, "EntryNotFound")
		return
	}
	w.Header().Set("X-Repo-Commit", commit)
	if len(content) < Large {
		w.Header().Set("ETag", strconv.Quote(Blob(content)))
		send(w, r, f, content)
		return
	}
	h.mu.Lock()
	id := h.blob(content)
	h.mu.Unlock()
	w.Header().Set("X-Linked-Etag", strconv.Quote(id))
	w.Header().Set("X-Linked-Size", strconv.Itoa(len(content)))
	http.Redirect(w, r, fmt.Sprintf("%s/%s/%s?signature=secret", h.Store, name, id), http.StatusFound)
}

// find returns a repository and the commit of a revision.
func (h *Hub) find(name, revision string) (*Repo, string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	repo := h.repos[name]
	if repo == nil {
		return nil, ""
	}
	revision, _ = url.PathUnescape(revision)
	if c, ok := repo.Refs[revision]; ok {
		return repo, c
	}
	if _, ok := repo.Trees[revision]; ok {
		return repo, revision
	}
	return repo, ""
}

// list answers GET /api/models/REPO/revision/REV.
func (h *Hub) list(w http.ResponseWriter, r *http.Request, f Fault, name, revision string) {
	repo, commit := h.find(name, revision)
	switch {
	case repo == nil && r.Header.Get("Authorization") == "", repo != nil && repo.Private && r.Header.Get("Authorization") != "Bearer "+repo.Token:
		fail(w, http.StatusUnauthorized, "RepoNotFound")
		return
	case repo == nil:
		fail(w, http.StatusNotFound, "RepoNotFound")
		return
	case commit == "":
		fail(w, http.StatusNotFound, "RevisionNotFound")
		return
	}
	if repo.Listing != nil {
		send(w, r, f, repo.Listing)
		return
	}
	siblings := []any{}
	for _, file := range names(repo.Trees[commit]) {
		content := repo.Trees[commit][file]
		one := map[string]any{"rfilename": file}
		if !repo.NoHashes {
			one["size"], one["blobId"] = len(content), Blob(content)
			if len(content) >= Large {
				one["blobId"] = strings.Repeat("0", 40) // git's id of the LFS pointer
				one["lfs"] = map[string]any{"sha256": Blob(content), "size": len(content), "pointerSize": 135}
			}
		}
		siblings = append(siblings, one)
	}
	body, err := json.Marshal(map[string]any{"id": name, "sha": commit, "siblings": siblings, "gated": repo.Gated})
	if err != nil {
		panic(err) // cannot fail: one has only strings and numbers
	}
	send(w, r, f, body)
}

// serveStore answers requests for large files, by their hash.
func (h *Hub) serveStore(w http.ResponseWriter, r *http.Request) {
	f := h.note(r, true)
	if f.instead(w) {
		return
	}
	h.mu.Lock()
	var content []byte
	for _, repo := range h.repos {
		for _, tree := range repo.Trees {
			for _, c := range tree {
				if strings.HasSuffix(r.URL.Path, "/"+h.blob(c)) {
					content = c
				}
			}
		}
	}
	h.mu.Unlock()
	if content == nil || r.URL.Query().Get("signature") != "secret" {
		w.WriteHeader(http.StatusForbidden)
		return
	}
	send(w, r, f, content)
}

// instead sends the status of the fault in place of the content, if it has one.
func (f Fault) instead(w http.ResponseWriter) bool {
	if f.RetryAfter != "" {
		w.Header().Set("Retry-After", f.RetryAfter)
	}
	switch {
	case f.Redirect != "":
		w.Header().Set("Location", f.Redirect)
		w.WriteHeader(http.StatusFound)
	case f.Status != 0:
		fail(w, f.Status, f.Code)
	default:
		return false
	}
	return true
}

func fail(w http.ResponseWriter, status int, code string) {
	if code != "" {
		w.Header().Set("X-Error-Code", code)
	}
	w.WriteHeader(status)
}

// send sends the content or the requested range, changed by the fault.
func send(w http.ResponseWriter, r *http.Request, f Fault, content []byte) {
	if f.Content != nil {
		content = f.Content
	}
	if f.Stall > 0 {
		w.Header().Set("Content-Length", strconv.Itoa(len(content)))
		w.WriteHeader(http.StatusOK)
		w.(http.Flusher).Flush()
		select {
		case <-time.After(f.Stall):
		case <-r.Context().Done():
		}
		return
	}
	if f.NoRange {
		r.Header.Del("Range")
	}
	if f.Flip {
		content = bytes.Clone(content)
		for i := range content {
			content[i] ^= 1
		}
	}
	if f.Cut > 0 {
		w = &cutter{ResponseWriter: w, left: f.Cut}
	}
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(content))
}

// cutter closes the connection after a number of bytes.
type cutter struct {
	http.ResponseWriter
	left int
}

func (c *cutter) Write(b []byte) (int, error) {
	if len(b) >= c.left {
		_, _ = c.ResponseWriter.Write(b[:c.left])
		c.ResponseWriter.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}
	c.left -= len(b)
	return c.ResponseWriter.Write(b)
}
