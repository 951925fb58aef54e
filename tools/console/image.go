package console

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"strings"
)

// maxImage is the maximum size of the file of an image, in bytes.
const maxImage = 64 << 20

// ImageURL returns the data: URL of an image file, for a part "image_url" of a request. It refuses
// files that are something else, such as texts; the server decodes the rest.
func ImageURL(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", unreadable(path, err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxImage+1))
	if err != nil {
		return "", unreadable(path, err)
	}
	kind, _, _ := strings.Cut(http.DetectContentType(data), ";")
	switch {
	case len(data) > maxImage:
		return "", fmt.Errorf("%s: more than %d bytes; give a smaller image", Printable(path), maxImage)
	case len(data) == 0:
		return "", fmt.Errorf("%s: no image, the file is empty", Printable(path))
	case bytes.HasPrefix(data, []byte("II*\x00")), bytes.HasPrefix(data, []byte("MM\x00*")):
		kind = "image/tiff"
	case !strings.HasPrefix(kind, "image/") && kind != "application/octet-stream":
		return "", fmt.Errorf("%s: no image, its content is %s", Printable(path), kind)
	}
	return "data:" + kind + ";base64," + base64.StdEncoding.EncodeToString(data), nil
}

// unreadable returns err with the path in front and without the name of the system call.
func unreadable(path string, err error) error {
	if e := (*fs.PathError)(nil); errors.As(err, &e) {
		err = e.Err
	}
	return fmt.Errorf("%s: %w", Printable(path), err)
}

// image reads a file for the next message. A terminal puts quotes around a dropped file's name.
func (c *Console) image(path string) error {
	for _, q := range []string{`"`, "'"} {
		if len(path) > 1 && strings.HasPrefix(path, q) && strings.HasSuffix(path, q) {
			path = path[1 : len(path)-1]
		}
	}
	if path == "" {
		return errors.New("/image needs the name of a file: /image cat.png")
	}
	url, err := ImageURL(path)
	if err != nil {
		return err
	}
	c.images = append(c.images, url)
	if n := len(c.images); n == 1 {
		c.note("The image goes with the next message; /clear drops it.\n")
	} else {
		c.note("%d images go with the next message; /clear drops them.\n", n)
	}
	return nil
}
