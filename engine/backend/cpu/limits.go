package cpu

// Limits are the rates that the pool's threads reach on this machine when they only read or
// multiply. Benchmarks compare their rates with them. The machine is shared, so measure both
// in the same run.
type Limits struct {
	Variant string  `json:"variant"`
	Threads int     `json:"threads"`
	Read    float64 `json:"read_bytes_per_second"` // in order, from memory
	F32     float64 `json:"f32_flop_per_second"`   // fused multiply-adds, from registers
	BF16    float64 `json:"bf16_flop_per_second"`  // by the widest bf16 instruction; F32 without one
	Int8    float64 `json:"int8_op_per_second"`    // by AVX-512 VNNI; 0 without it
}
