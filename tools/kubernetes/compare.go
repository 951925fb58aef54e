package kubernetes

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"math/big"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// File is a manifest or a values file of a repository.
type File struct {
	Name string
	Text []byte
}

// Difference is a field of a repository's manifests that is not as the plan has it.
type Difference struct {
	File  string
	Line  int // 0: the whole file
	Field string
	Have  string // "": absent
	Want  string
	// Short are the bytes by which a memory limit is below what the plan takes; 0: it is not, or the
	// server would take less. Such a pod is refused at its start.
	Short int64
}

// String returns one line: file:line: field: what is there, what the plan says.
func (d Difference) String() string {
	at := d.File
	if d.Line > 0 {
		at = fmt.Sprintf("%s:%d", d.File, d.Line)
	}
	have := d.Have
	if have == "" {
		have = "absent"
	}
	text := fmt.Sprintf("%s: %s: %s, the plan has %s", at, d.Field, have, d.Want)
	if d.Short > 0 {
		text += fmt.Sprintf(": %d bytes are missing, so the pod is refused at its start", d.Short)
	}
	return text
}

// NothingError reports files without an object of the server.
type NothingError struct{ Name string }

func (e *NothingError) Error() string {
	return fmt.Sprintf("no Deployment, LeaderWorkerSet or values file of %q; `vapp manifest` writes them", e.Name)
}

// limits of the files that are read.
const (
	maxBytes     = 4 << 20 // of a file
	maxDocuments = 1000
	maxDepth     = 64
)

// Compare returns what differs between the plan's values and the files: manifests as Manifests makes
// them, with more fields or not, or values of the chart. Choices of the cluster are not compared: the
// number of servers, the repository of the image, claims, Secrets, and fields that only the files
// have. A memory limit above the plan is no difference. The error is a *NothingError, or names a
// file that is not YAML.
func (v *Values) Compare(files []File) ([]Difference, error) {
	want, err := v.trees()
	if err != nil {
		return nil, err
	}
	var out []Difference
	found := false
	for _, f := range files {
		docs, err := documents(f)
		if err != nil {
			return nil, err
		}
		for _, d := range docs {
			c := comparison{file: f.Name, share: v.share}
			if w, ok := want[identity(d)]; ok {
				found = found || workloads[kindOf(d)]
				c.walk("", d, w)
			} else if kindOf(d) == "" && child(d, "pod") != nil && child(d, "plan") != nil && fileOf(d) == v.Profile.File {
				found = true
				c.walk("", d, want[""])
			}
			out = append(out, c.out...)
		}
	}
	if !found {
		return nil, &NothingError{v.name}
	}
	slices.SortFunc(out, func(a, b Difference) int {
		return cmp.Or(strings.Compare(a.File, b.File), a.Line-b.Line, strings.Compare(a.Field, b.Field))
	})
	return out, nil
}

var workloads = map[string]bool{"Deployment": true, "LeaderWorkerSet": true}

// trees returns the parsed manifests by kind and name, and under "" the values.
func (v *Values) trees() (map[string]*yaml.Node, error) {
	text, err := v.Manifests()
	if err != nil {
		return nil, err
	}
	docs, err := documents(File{Text: text})
	if err != nil {
		return nil, err
	}
	out := map[string]*yaml.Node{}
	for _, d := range docs {
		out[identity(d)] = d
	}
	if text, err = v.YAML(); err != nil {
		return nil, err
	}
	if docs, err = documents(File{Text: text}); err != nil {
		return nil, err
	}
	out[""] = docs[0]
	return out, nil
}

// documents parses the mappings of a file. It refuses aliases, which could stand for more than fits
// into memory.
func documents(f File) ([]*yaml.Node, error) {
	if len(f.Text) > maxBytes {
		return nil, fmt.Errorf("%s: %d bytes; a manifest has at most %d", f.Name, len(f.Text), maxBytes)
	}
	var out []*yaml.Node
	for d := yaml.NewDecoder(bytes.NewReader(f.Text)); ; {
		var n yaml.Node
		switch err := d.Decode(&n); {
		case errors.Is(err, io.EOF):
			return out, nil
		case err != nil:
			return nil, fmt.Errorf("%s: %s", f.Name, strings.Join(strings.Fields(err.Error()), " "))
		case len(out) == maxDocuments:
			return nil, fmt.Errorf("%s: more than %d documents", f.Name, maxDocuments)
		}
		if err := plain(&n, 0); err != nil {
			return nil, fmt.Errorf("%s:%w", f.Name, err)
		}
		if n.Kind == yaml.DocumentNode && len(n.Content) == 1 && n.Content[0].Kind == yaml.MappingNode {
			out = append(out, n.Content[0])
		}
	}
}

func plain(n *yaml.Node, depth int) error {
	if n.Kind == yaml.AliasNode {
		return fmt.Errorf("%d: an alias; write the fields out", n.Line)
	}
	if depth > maxDepth {
		return fmt.Errorf("%d: more than %d levels", n.Line, maxDepth)
	}
	for _, c := range n.Content {
		if err := plain(c, depth+1); err != nil {
			return err
		}
	}
	return nil
}

// child returns the value of a mapping's key; nil: there is none.
func child(n *yaml.Node, key string) *yaml.Node {
	if n == nil || n.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return n.Content[i+1]
		}
	}
	return nil
}

func text(n *yaml.Node) string {
	if n == nil {
		return ""
	}
	return n.Value
}

func kindOf(n *yaml.Node) string { return text(child(n, "kind")) }
func fileOf(n *yaml.Node) string { return text(child(child(n, "profile"), "file")) }
func identity(n *yaml.Node) string {
	return kindOf(n) + " " + text(child(child(n, "metadata"), "name"))
}

// comparison compares one document.
type comparison struct {
	file  string
	share bool
	out   []Difference
}

// free are fields that a cluster chooses.
func free(field string) bool {
	if strings.HasPrefix(field, "metadata.labels") { // of the object; those of pods are selected by
		return true
	}
	for _, end := range []string{
		"replicas", ".claimName", ".secretKeyRef.name", ".keySecret", ".claim", "image.repository", ".volumes[model]",
	} {
		if strings.HasSuffix(field, end) {
			return true
		}
	}
	return false
}

// walk compares what want has with have, of the same field.
func (c *comparison) walk(field string, have, want *yaml.Node) {
	switch {
	case free(field):
	case have.Kind != want.Kind:
		c.differs(field, have, want)
	case want.Kind == yaml.MappingNode:
		for i := 0; i+1 < len(want.Content); i += 2 {
			key := want.Content[i].Value
			at := strings.TrimPrefix(field+"."+key, ".")
			if below := child(have, key); below != nil {
				c.walk(at, below, want.Content[i+1])
			} else if !free(at) {
				c.absent(at, have, want.Content[i+1])
			}
		}
	case want.Kind == yaml.SequenceNode:
		c.list(field, have, want)
	default:
		c.leaf(field, have, want)
	}
}

// list compares elements of the same name, else of the same place.
func (c *comparison) list(field string, have, want *yaml.Node) {
	if n := len(want.Content); n > 0 && want.Content[0].Kind == yaml.ScalarNode && len(have.Content) > n {
		more := have.Content[n]
		c.out = append(c.out, Difference{File: c.file, Line: more.Line, Field: fmt.Sprintf("%s[%d]", field, n), Have: short(more), Want: "nothing"})
	}
	for i, w := range want.Content {
		name := text(child(w, "name"))
		at, with := fmt.Sprintf("%s[%d]", field, i), (*yaml.Node)(nil)
		if name != "" {
			at = fmt.Sprintf("%s[%s]", field, name)
			for _, h := range have.Content {
				if text(child(h, "name")) == name {
					with = h
				}
			}
		} else if i < len(have.Content) {
			with = have.Content[i]
		}
		if with == nil {
			c.absent(at, have, w)
			continue
		}
		c.walk(at, with, w)
	}
}

// leaf compares values: quantities as numbers, images by their tags, others as text.
func (c *comparison) leaf(field string, have, want *yaml.Node) {
	last := field[strings.LastIndexByte(field, '.')+1:]
	switch {
	case last == "image":
		if have.Value[strings.LastIndexByte(have.Value, ':')+1:] != want.Value[strings.LastIndexByte(want.Value, ':')+1:] {
			c.differs(field, have, want)
		}
		return
	case last == "memory" && strings.Contains(field, "resources"), last == "cpu", last == "sizeLimit", last == "sharedMemory", last == "swap":
		h, err := quantity(have.Value)
		w, wrong := quantity(want.Value)
		if err != nil || wrong != nil {
			c.differs(field, have, want)
			return
		}
		short := new(big.Rat).Sub(w, h)
		if last == "cpu" && short.Sign() != 0 || short.Sign() > 0 {
			c.differs(field, have, want)
			if last == "memory" && strings.Contains(field, "limits") && !c.share {
				missing := new(big.Int).Quo(short.Num(), short.Denom())
				c.out[len(c.out)-1].Short = missing.Int64()
			}
		}
		return
	}
	if have.Value != want.Value {
		c.differs(field, have, want)
	}
}

func (c *comparison) differs(field string, have, want *yaml.Node) {
	c.out = append(c.out, Difference{File: c.file, Line: have.Line, Field: field, Have: short(have), Want: short(want)})
}

func (c *comparison) absent(field string, parent, want *yaml.Node) {
	c.out = append(c.out, Difference{File: c.file, Line: parent.Line, Field: field, Want: short(want)})
}

// short returns a value on one line.
func short(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	}
	if strings.ContainsAny(n.Value, "\n\r") {
		return fmt.Sprintf("a text of %d bytes", len(n.Value))
	}
	const most = 120
	if len(n.Value) > most {
		return fmt.Sprintf("%q…", n.Value[:most])
	}
	return n.Value
}
