package cpu

// Limits is what threads of the pool reach on this machine when they do nothing
// but read or multiply: what a benchmark compares its rates with. The machine is
// shared, so measure them in the same run.
type Limits struct {
	Variant string  `json:"variant"`
	Threads int     `json:"threads"`
	Read    float64 `json:"read_bytes_per_second"` // in order, from memory
	F32     float64 `json:"f32_flop_per_second"`   // fused multiply-adds, from registers
	BF16    float64 `json:"bf16_flop_per_second"`  // the widest product of bf16; F32 where there is none
	Int8    float64 `json:"int8_op_per_second"`    // of AVX-512 VNNI; 0 where there is none
}
