package kernels

// JoinBlocks joins the two tensors of a matrix in MXFP4 or NVFP4: each block of dst is the block's codes
// and then its scale, one byte. All blocks have as many bytes of codes.
func JoinBlocks(codes, scales, dst []byte) {
	n := len(codes) / max(1, len(scales))
	for i, s := range scales {
		block := dst[(n+1)*i:][:n+1]
		copy(block, codes[n*i:][:n])
		block[n] = s
	}
}
