package hub

import (
	"context"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
)

// fetch downloads the blob of a file into the cache, unless it exists. It waits for another process
// that downloads the same blob.
func (c *Client) fetch(ctx context.Context, p *Pull, f File) error {
	if c.has(p.Name, f) {
		return nil
	}
	path := c.blob(p.Name, f.Blob)
	locks := filepath.Join(c.Cache, ".locks", filepath.Base(c.folder(p.Name)))
	for _, dir := range []string{filepath.Dir(path), locks} {
		if err := os.MkdirAll(dir, 0o777); err != nil {
			return p.failed(err)
		}
	}
	waits := func() { c.say(fmt.Sprintf("%s: another process is downloading it; waiting", f.Path)) }
	unlock, err := acquire(ctx, filepath.Join(locks, f.Blob+".lock"), waits)
	if err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return p.failed(err)
	}
	defer unlock()
	if c.has(p.Name, f) { // it was downloaded while this process waited
		p.m.add(f.Size)
		return nil
	}
	for try := 0; ; try++ {
		t := &transfer{c: c, p: p, f: f, path: path + ".vapp.incomplete"}
		sum, err := t.run(ctx)
		if err != nil {
			return c.explain(p.Name, err)
		}
		if sum == f.Blob {
			t.forget()
			if err := os.Rename(t.path, path); err != nil {
				return p.failed(err)
			}
			return nil
		}
		p.m.again(t.counted, f.Size)
		t.drop()
		if try == 1 {
			return p.Name.errorf(Damaged, "%s was downloaded twice with another hash than the hub lists (%s, not %s); a proxy on the way to %s may change files", f.Path, sum, f.Blob, hostOf(c.Endpoint))
		}
		c.say(fmt.Sprintf("%s: the download is damaged; downloading it again", f.Path))
	}
}

// has reports whether the cache has the complete content of the file: a blob gets its name when it
// is complete.
func (s Settings) has(n Name, f File) bool {
	st, err := os.Stat(s.blob(n, f.Blob))
	return err == nil && st.Mode().IsRegular() && st.Size() == f.Size
}

// missing returns the bytes of a file that are not downloaded yet.
func (c *Client) missing(n Name, f File) int64 {
	if c.has(n, f) {
		return 0
	}
	return f.Size - readParts(c.blob(n, f.Blob)+".vapp.incomplete.parts", f.Size, c.part).bytes()
}

// transfer is the download of one file.
type transfer struct {
	c    *Client
	p    *Pull
	f    File
	path string // the file being written
	file *os.File

	mu      sync.Mutex
	done    parts
	counted int64 // bytes counted in the meter
}

// count adds n bytes to the meter.
func (t *transfer) count(n int64) {
	t.mu.Lock()
	t.counted += n
	t.mu.Unlock()
	t.p.m.add(n)
}

// errNoRanges means that the server ignores range requests.
var errNoRanges = errors.New("the server does not support range requests")

// run downloads the missing parts and returns the hash of the file.
func (t *transfer) run(ctx context.Context) (sum string, err error) {
	if t.file, err = os.OpenFile(t.path, os.O_RDWR|os.O_CREATE, 0o666); err != nil {
		return "", t.p.failed(err)
	}
	defer func() { err = errors.Join(err, t.file.Close()) }()
	t.done = readParts(t.record(), t.f.Size, t.c.part)
	if st, err := t.file.Stat(); err != nil || st.Size() != t.f.Size {
		t.done.Done = nil
	}
	if err := t.file.Truncate(t.f.Size); err != nil {
		return "", t.p.failed(err)
	}
	err = t.parts(ctx)
	if errors.Is(err, errNoRanges) {
		err = t.whole(ctx)
	}
	if err != nil {
		return "", err
	}
	if err := t.file.Sync(); err != nil { // before the file is renamed
		return "", t.p.failed(err)
	}
	if sum, err = hashOf(ctx, t.file, t.f); err != nil && ctx.Err() == nil {
		err = t.p.failed(err)
	}
	return sum, err
}

// parts downloads the missing parts, several at a time.
func (t *transfer) parts(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var missing []int64
	for i := range t.done.count() {
		if !t.done.has(i) {
			missing = append(missing, i)
		}
	}
	next := make(chan int64)
	var workers sync.WaitGroup
	for range min(connections, len(missing)) {
		workers.Go(func() {
			for i := range next {
				if err := t.part(ctx, i); err != nil {
					cancel(err)
				}
			}
		})
	}
	for _, i := range missing {
		select {
		case next <- i:
			continue
		case <-ctx.Done():
		}
		break
	}
	close(next)
	workers.Wait()
	return context.Cause(ctx)
}

// part downloads one part, with retries.
func (t *transfer) part(ctx context.Context, i int64) error {
	from, to := parts{Size: t.f.Size, Part: t.c.part}.span(i)
	at := from
	err := t.c.retry(ctx, func() (bool, error) {
		n, err := t.request(ctx, at, to)
		at += n
		t.count(n)
		return n >= min(1<<16, t.c.part/32), err
	})
	if err != nil {
		t.count(from - at) // an incomplete part is discarded
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.done.Done = append(t.done.Done, i)
	if t.done.count() == 1 {
		return nil // nothing to resume
	}
	if err := t.done.write(t.record()); err != nil {
		return t.p.failed(err)
	}
	return nil
}

// request downloads bytes [at, to) and writes them at their offset. n is the number of bytes
// written.
func (t *transfer) request(ctx context.Context, at, to int64) (n int64, err error) {
	if at == to {
		return 0, nil
	}
	t.c.open <- struct{}{}
	defer func() { <-t.c.open }()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	address := t.c.resolve(t.p, t.f)
	res, err := t.c.send(ctx, http.MethodGet, address, fmt.Sprintf("bytes=%d-%d", at, to-1))
	if err != nil {
		return 0, err
	}
	if res.StatusCode == http.StatusRequestedRangeNotSatisfiable {
		res.Body.Close()
		return 0, t.p.Name.errorf(Damaged, "the hub lists %s with %d bytes and has fewer; try again, it may just have changed", t.f.Path, t.f.Size)
	}
	if err := check(res); err != nil {
		return 0, err
	}
	defer res.Body.Close()
	switch {
	case res.StatusCode == http.StatusPartialContent:
		if err := t.fits(res.Header.Get("Content-Range"), at); err != nil {
			return 0, err
		}
	case at != 0 || to != t.f.Size:
		return 0, t.noRanges()
	case res.ContentLength >= 0 && res.ContentLength != t.f.Size:
		return 0, t.otherSize(res.ContentLength)
	}
	return t.write(ctx, cancel, res.Body, at, to)
}

// noRanges returns an error that retry does not retry.
func (t *transfer) noRanges() error {
	e := t.p.Name.errorf(Unreachable, "%s cannot be fetched in parts", t.f.Path)
	e.Cause = errNoRanges
	return e
}

func (t *transfer) otherSize(n int64) error {
	return t.p.Name.errorf(Damaged, "the hub lists %s with %d bytes and sends %d; try again, it may just have changed", t.f.Path, t.f.Size, n)
}

// fits checks a Content-Range header against the request.
func (t *transfer) fits(header string, at int64) error {
	first, total, ok := parseContentRange(header)
	switch {
	case !ok || first != at:
		return t.noRanges()
	case total >= 0 && total != t.f.Size:
		return t.otherSize(total)
	}
	return nil
}

// parseContentRange parses "bytes FIRST-LAST/TOTAL"; total is -1 where it is "*".
func parseContentRange(header string) (first, total int64, ok bool) {
	rest, ok := strings.CutPrefix(header, "bytes ")
	if !ok {
		return 0, 0, false
	}
	span, all, ok := strings.Cut(rest, "/")
	a, b, two := strings.Cut(span, "-")
	first, err := strconv.ParseInt(a, 10, 64)
	last, err2 := strconv.ParseInt(b, 10, 64)
	if !ok || !two || err != nil || err2 != nil || first < 0 || last < first {
		return 0, 0, false
	}
	if all == "*" {
		return first, -1, true
	}
	total, err = strconv.ParseInt(all, 10, 64)
	return first, total, err == nil && total > last
}

// write copies a response body to offset at of the file, up to offset to.
func (t *transfer) write(ctx context.Context, cancel context.CancelCauseFunc, body io.Reader, at, to int64) (int64, error) {
	n, err := io.CopyBuffer(
		&progressWriter{io.NewOffsetWriter(t.file, at)}, io.LimitReader(t.c.patient(body, cancel), to-at), make([]byte, 1<<18))
	var disk *os.PathError
	switch {
	case errors.As(err, &disk):
		return n, t.p.failed(err)
	case err != nil && errors.Is(context.Cause(ctx), errStall):
		return n, errStall
	case err == nil && n < to-at:
		return n, io.ErrUnexpectedEOF
	}
	return n, err
}

// progressWriter hides ReadFrom, so that io.Copy copies in small pieces and progress is visible.
type progressWriter struct{ w io.Writer }

func (p *progressWriter) Write(b []byte) (int, error) { return p.w.Write(b) }

// whole downloads the file in one request.
func (t *transfer) whole(ctx context.Context) error {
	t.done.Done = nil
	t.count(-t.counted)
	return t.c.retry(ctx, func() (bool, error) {
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		address := t.c.resolve(t.p, t.f)
		res, err := t.c.send(ctx, http.MethodGet, address, "")
		if err != nil {
			return false, err
		}
		if err := check(res); err != nil {
			return false, err
		}
		defer res.Body.Close()
		if res.ContentLength >= 0 && res.ContentLength != t.f.Size {
			return false, t.otherSize(res.ContentLength)
		}
		n, err := t.write(ctx, cancel, res.Body, 0, t.f.Size)
		t.count(n)
		if err != nil {
			t.count(-n)
		}
		return false, err
	})
}

// record returns the path of the file that lists the downloaded parts.
func (t *transfer) record() string { return t.path + ".parts" }

func (t *transfer) forget() { os.Remove(t.record()) }

func (t *transfer) drop() {
	t.forget()
	os.Remove(t.path)
}

// resolve returns the URL of a file at the commit.
func (c *Client) resolve(p *Pull, f File) string {
	parts := strings.Split(f.Path, "/")
	for i, s := range parts {
		parts[i] = url.PathEscape(s)
	}
	return fmt.Sprintf("%s/%s/resolve/%s/%s", c.Endpoint, p.Name.Repo, p.Commit, strings.Join(parts, "/"))
}

// hashOf returns the SHA-256 of a file, or git's SHA-1 where the blob is named by that.
func hashOf(ctx context.Context, file *os.File, f File) (string, error) {
	var h hash.Hash
	if len(f.Blob) == 2*sha256.Size {
		h = sha256.New()
	} else {
		h = sha1.New()
		fmt.Fprintf(h, "blob %d\x00", f.Size)
	}
	r := io.NewSectionReader(file, 0, f.Size)
	for {
		n, err := io.CopyN(h, r, 16<<20)
		switch {
		case ctx.Err() != nil:
			return "", context.Cause(ctx)
		case err == io.EOF || err == nil && n == 0:
			return hex.EncodeToString(h.Sum(nil)), nil
		case err != nil:
			return "", err
		}
	}
}
