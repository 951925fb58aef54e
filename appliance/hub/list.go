package hub

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
)

// File is one file of a repository at a commit.
type File struct {
	Path string // slash-separated, relative to the repository
	Size int64
	// Blob is the id of the content: SHA-256 for files in LFS or Xet, else git's SHA-1.
	Blob string
}

// Listing is a repository at one commit.
type Listing struct {
	Name   Name
	Commit string
	Files  []File
}

// maxListing bounds the API's answer in bytes, maxFiles the files of a listing.
const (
	maxListing = 64 << 20
	maxFiles   = 1 << 17
	maxSize    = 1 << 50 // bytes of one file
)

// wireModel has the used fields of GET /api/models/REPO/revision/REV?blobs=true.
type wireModel struct {
	SHA      string     `json:"sha"`
	Siblings []wireFile `json:"siblings"`
}

type wireFile struct {
	Name   string `json:"rfilename"`
	Size   *int64 `json:"size"`
	BlobID string `json:"blobId"`
	LFS    *struct {
		SHA256 string `json:"sha256"`
		OID    string `json:"oid"`
		Size   *int64 `json:"size"`
	} `json:"lfs"`
}

// List requests the files of a repository at n's revision.
func (c *Client) List(ctx context.Context, n Name) (*Listing, error) {
	if c.Offline {
		return nil, n.errorf(Offline, "not in the cache %s, and the network is not to be used (--offline or HF_HUB_OFFLINE); fetch it first with `vapp pull %s`, here or on a machine whose cache you copy (HF_HOME)", c.Cache, n)
	}
	at := fmt.Sprintf("%s/api/models/%s/revision/%s?blobs=true", c.Endpoint, n.Repo, url.PathEscape(n.revision()))
	body, err := c.document(ctx, n, at)
	if err != nil {
		return nil, err
	}
	l, err := parseListing(n, body)
	if err != nil {
		return nil, err
	}
	return l, nil
}

// parseListing parses the API's answer. A file name that could leave the cache is an error, because
// no correct hub lists one.
func parseListing(n Name, body []byte) (*Listing, error) {
	var w wireModel
	if err := json.Unmarshal(body, &w); err != nil {
		return nil, n.errorf(Unreachable, "the hub's list of files cannot be parsed: %v; is HF_ENDPOINT a Hugging Face hub?", err)
	}
	switch {
	case !commitPattern.MatchString(w.SHA):
		return nil, n.errorf(Untrusted, "the hub sent %.60q as the commit of %s; is HF_ENDPOINT a Hugging Face hub?", w.SHA, n.revision())
	case commitPattern.MatchString(n.Revision) && n.Revision != w.SHA:
		return nil, n.errorf(Untrusted, "commit %s was requested and the hub sent %s", n.Revision, w.SHA)
	case len(w.Siblings) > maxFiles:
		return nil, n.errorf(Untrusted, "the hub lists %d files; at most %d are read", len(w.Siblings), maxFiles)
	}
	l := &Listing{Name: n, Commit: w.SHA}
	seen := map[string]bool{}
	for _, f := range w.Siblings {
		if !localName(f.Name) {
			return nil, n.errorf(Untrusted, "the hub lists a file %.80q, whose path could leave the cache; nothing was downloaded", f.Name)
		}
		if seen[f.Name] {
			return nil, n.errorf(Untrusted, "the hub lists %.80q twice", f.Name)
		}
		seen[f.Name] = true
		l.Files = append(l.Files, f.file())
	}
	return l, nil
}

// file converts the entry; an unknown Blob is "", an unknown Size is negative.
func (f wireFile) file() File {
	out := File{Path: f.Name, Size: -1, Blob: f.BlobID}
	if f.Size != nil {
		out.Size = *f.Size
	}
	if f.LFS != nil {
		out.Blob = strings.TrimPrefix(f.LFS.SHA256, "sha256:")
		if out.Blob == "" {
			out.Blob = strings.TrimPrefix(f.LFS.OID, "sha256:")
		}
		if f.LFS.Size != nil {
			out.Size = *f.LFS.Size
		}
	}
	return out
}

// find returns the listed file with this name.
func (l *Listing) find(name string) (File, bool) {
	for _, f := range l.Files {
		if f.Path == name {
			return f, true
		}
	}
	return File{}, false
}
