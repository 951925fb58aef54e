package compat

// matrix allocates the weight of a linear layer of n outputs and k inputs on this rank. shards are
// the names of the checkpoint's modules that it fuses.
func (w *rank) matrix(n, k int64, bias bool, shards ...string) {
	q := &w.quant
	switch {
	case w.online:
		w.pending = append(w.pending, pending{layer: w.layer, name: shards[0], n: n, k: k})
	case q.scheme == plain || q.scheme == mxfp4 || q.skips(shards[0]):
		w.param(n, k)
	case q.scheme == fp8Blocks:
		if !w.unsplit && (n%q.blockN != 0 && len(shards) > 1 || w.tp > 1 && (n%q.blockN != 0 || k%q.blockK != 0)) {
			w.failField("parallel.tensor", "%d leaves %s with %d x %d, which blocks of %d x %d do not divide", w.tp, shards[0], n, k, q.blockN, q.blockK)
		}
		weight := w.tensor(1, n, k)
		scale := w.tensor(4, ceilDiv(n, q.blockN), ceilDiv(k, q.blockK))
		w.converted(weight, scale, ceilDiv(k, q.blockK)*n)
	case q.scheme == packed:
		w.packedMatrix(1, n, k, shards[0])
	default: // per tensor and per channel
		weight := w.tensor(1, n, k)
		per := int64(len(shards))
		if q.scheme == fp8Channel {
			per = n
		}
		scale := w.tensor(4, per)
		if q.static {
			w.tensor(4, int64(len(shards)))
		}
		w.converted(weight, scale, n)
	}
	if bias {
		w.param(n)
	}
}

// unsplitMatrix allocates a matrix that every rank holds whole. Its last block may be a part.
func (w *rank) unsplitMatrix(n, k int64, shards ...string) {
	w.unsplit = true
	w.matrix(n, k, false, shards...)
	w.unsplit = false
}

func (w *rank) converted(weight, scale *block, scales int64) {
	if w.marlin {
		w.repacked = append(w.repacked, repacked{weight, scale, w.part, scales})
	}
}

func (w *rank) failField(field, format string, args ...any) {
	if w.err == nil {
		w.err = fault(field, format, args...)
	}
}
