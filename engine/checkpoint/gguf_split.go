package checkpoint

import (
	"path/filepath"

	"vapp.dev/filekind"
)

// ggufSplit is what a file of a split model says about itself; the zero value is a whole model.
type ggufSplit struct {
	no, count int   // the file's number from 0, and the number of files
	tensors   int64 // of all files; 0 if the file does not say it
}

// readSplit reads the keys of a split model, which every file of it has.
func (g *gguf) readSplit() error {
	f := &ggufFields{g: g}
	count := f.count("split.count", 0, maxShards, 0)
	if f.err != nil || count < 2 {
		return f.err
	}
	g.split = ggufSplit{
		no: f.count("split.no", 0, int64(count)-1, -1), count: count,
		tensors: int64(f.count("split.tensors.count", 0, maxTensors, 0)),
	}
	return f.err
}

// joinSplits adds the tensors of the other files of a split model. open returns the bytes of a file.
func (g *gguf) joinSplits(open func(path string) ([]byte, error)) error {
	if g.split.count < 2 {
		return nil
	}
	_, index, count, ok := filekind.SplitGGUF(g.path)
	switch {
	case !ok || count != g.split.count || index != g.split.no+1:
		return fault(g.path, "split.no", "says file %d of %d, and the file is not named so; name the files NAME-00001-of-%05d.gguf and so on", g.split.no+1, g.split.count, g.split.count)
	case g.split.no > 0:
		return fault(g.path, "", "is file %d of a model of %d files; name the first, %s", index, count, filepath.Base(filekind.NthGGUF(g.path, 1)))
	}
	for i := 2; i <= count; i++ {
		path := filekind.NthGGUF(g.path, i)
		data, err := open(path)
		if err != nil {
			return missingSplit(g.path, path, err)
		}
		err = catchFault(path, func() error { return g.join(path, data, i-1) })
		if err != nil {
			return err
		}
	}
	if n := int64(len(g.tensors)); g.split.tensors > 0 && n != g.split.tensors {
		return fault(g.path, "split.tensors.count", "is %d, the %d files have %d tensors; fetch all of one version of the model", g.split.tensors, count, n)
	}
	return nil
}

// join adds file no of the model, counted from 0.
func (g *gguf) join(path string, data []byte, no int) error {
	part, err := parseGGUF(path, data)
	if err != nil {
		return err
	}
	switch {
	case part.split.count != g.split.count:
		return fault(path, "split.count", "is %d, that of the first file is %d: a file of another model", part.split.count, g.split.count)
	case part.split.no != no:
		return fault(path, "split.no", "is %d, by its name it is %d", part.split.no, no)
	case part.split.tensors != g.split.tensors:
		return fault(path, "split.tensors.count", "is %d, that of the first file is %d: a file of another model", part.split.tensors, g.split.tensors)
	}
	if v, ok := part.values["general.architecture"]; ok && string(v.raw) != string(g.values["general.architecture"].raw) {
		return fault(path, "general.architecture", "is %s, that of the first file is %s: a file of another model", clip(string(v.raw)), clip(string(g.values["general.architecture"].raw)))
	}
	g.data[path] = data
	g.tensors = append(g.tensors, part.tensors...)
	return nil
}

// missingSplit returns the error for a file of a split model that cannot be opened.
func missingSplit(first, path string, err error) error {
	e := failed(path, "", err)
	return &Error{File: path, Msg: e.Msg + "; it belongs to " + filepath.Base(first) + ", fetch all files of the model", Err: e.Err}
}
