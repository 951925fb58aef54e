package models

import (
	"vapp.dev/engine/backend"
	"vapp.dev/engine/checkpoint"
	"vapp.dev/kernels"
)

// tensorList collects the tensors of a checkpoint: names and shapes of transformers' modules, in
// the formats of torch_dtype and quantization_config.
type tensorList struct {
	list  []checkpoint.TensorInfo
	dtype kernels.Format
	quant quant
}

// tensorsOf returns an empty list. It ignores an unsupported quantization, which New refuses.
func tensorsOf(c checkpoint.Config) *tensorList {
	q, _ := quantOf(c)
	return &tensorList{dtype: Dtype(c), quant: q}
}

// put adds a tensor in format f.
func (l *tensorList) put(f kernels.Format, name string, shape ...int) {
	t := checkpoint.TensorInfo{Name: name, Format: f}
	for _, d := range shape {
		t.Shape = append(t.Shape, int64(d))
	}
	t.Bytes = f.Bytes(t.Elements())
	l.list = append(l.list, t)
}

// add adds a tensor in the model's own format.
func (l *tensorList) add(name string, shape ...int) { l.put(l.dtype, name, shape...) }

// linear adds the weight [rows, cols] of a module, its scales if the checkpoint quantizes it, and
// its bias.
func (l *tensorList) linear(module string, bias bool, rows, cols int) {
	l.weight(module, rows, cols)
	if bias {
		l.add(module+".bias", rows)
	}
}

func (l *tensorList) weight(module string, rows, cols int) {
	q := l.quant
	if q.joins() && q.converts(module) {
		l.put(q.format, module+".weight", rows, cols)
		if q.format == kernels.NVFP4 {
			l.put(kernels.F32, module+".weight"+checkpoint.GlobalScaleSuffix)
		}
		if q.ordered {
			l.put(kernels.F32, module+".weight"+checkpoint.OrderSuffix, cols)
		}
		return
	}
	if q.format != kernels.F8E4M3 && q.format != kernels.I8 || !q.converts(module) {
		l.add(module+".weight", rows, cols)
		return
	}
	if q.packed {
		l.put(kernels.I32, module+".weight"+int8Packed, rows, (cols+3)/4)
		l.put(kernels.I64, module+".weight"+int8Shape, 2)
	} else {
		l.put(q.format, module+".weight", rows, cols)
	}
	name := module + ".weight" + q.suffix
	up := func(n int) int { return (n + backend.ScaleBlock - 1) / backend.ScaleBlock }
	switch q.scaling {
	case backend.PerBlock:
		l.add(name, up(rows), up(cols))
	case backend.PerChannel:
		l.add(name, rows, 1)
	case backend.PerGroup:
		l.add(name, rows, (cols+q.group-1)/q.group)
	case backend.PerTensor:
		l.put(kernels.F32, name)
	}
}
