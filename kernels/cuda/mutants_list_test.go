package cuda_test

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
)

// mutant is a kernel broken in one place.
type mutant struct{ file, old, new, test string }

// attentionCases selects the cases of attention that find most faults.
const attentionCases = "TestAttention/^(decode|prompt|behind|inside|windows|chunk|chunks|splits|items|items_seen|nan_e4m3|nan_e5m2|f32|f32_many|both|rebuild|many_sink|sinks|512)$"

// listCases selects those of attention by lists of pieces.
const listCases = "TestAttentionLists/^(decode|mixed|most)$"

// wideListCases selects those with heads of 256 and 512.
const wideListCases = "TestAttentionLists/^(256|512)$"

// wideCases selects those of attention by warpgroups.
const wideCases = "TestAttentionWide/^(prompt|long|windows|sinks|512|mixed)$"

// eightCases selects those with keys and values in 8 bits.
const eightCases = "TestAttentionWide/^(e4m3_long|e4m3_list|e5m2_512)$"

// latentCases selects those of attention over latent keys.
const latentCases = "TestLatentAttention/^(decode|prompt|narrow|verify|splits|many_splits|f16_many|nan|f32|f32_many)$"

// pickedWide is a product of experts whose blocks walk over tiles.
const pickedWide = "TestPicks/^linear_mxfp4_picks_wide$"

var mutants = []mutant{
	{"linear_tile.cuh", "copy_wait<kStages - 2>();", "", "TestLinear"},
	{"linear_tile.cuh", "copy_wait<kStages - 2>();\n    __syncthreads();", "copy_wait<kStages - 2>();", "TestLinear"},
	{"linear.cuh", "there && row0", "row0", "TestLinear"},
	{"linear.cuh", "if (count + 1 < unsigned(a.splits)) return false;", "if (count + 2 < unsigned(a.splits)) return false;", "TestLinear"},
	{"linear.cuh", "if (threadIdx.x == 0) a.arrived[block] = 0;", "", "TestLinear"},
	{"linear.cuh", "if (feature >= a.part_row[i]) part = i;", ";", "TestLinearParts"},
	{"linear.cuh", "multiply<W>(t, w.w[1], x.z, x.w);", "multiply<W>(t, w.w[1], x.w, x.z);", "TestLinear"},
	{"linear.cuh", "multiply_bf16(t[1], ones, x.z, x.w);", "multiply_bf16(t[1], ones, x.x, x.y);", "TestLinear"},
	{"linear.cuh", "r / 16 * 8 + r % 8 : r", "r / 16 * 16 + r % 8 : r", "TestLinearGated"},
	{"linear.cuh", "k = a.paired ? 4 * (g & 1) + g / 2 : g", "k = g", "TestLinearGated"},
	{"linear.cuh", "(odd ? gate[i] : up[i]) = got;", "up[i] = got;", "TestLinearGated"},
	{"linear.cuh", " || 8 * tile >= a.rows) return;", ") return;", "TestLinearGated"},
	{"linear.cuh", "packed_pair(a.f16, second ? got : y[0], second ? y[1] : got)", "packed_pair(a.f16, y[0], y[1])", "TestLinearGated"},
	{"linear.cuh", "row + i < a.rows ? y[i] : 0.0f", "y[i]", "TestLinearGated/linear_nvfp4"},
	{"linear.cuh", "at += further;", ";", "TestLinearGated/linear_nvfp4"},
	{"linear.cuh", "rows[i] = r < a.out ? a.rows : 0;", "rows[i] = a.rows;", "TestLinear/nvfp4"},
	{"linear.cuh", "if (row + 1 < rows[i])", "if (row < rows[i])", "TestLinear/nvfp4"},
	{"linear.cuh", "at[i] += 8 * (long long)a.out;", ";", "TestLinear/nvfp4"},
	{"linear.cuh", "if (a.y_bf16)\n    Lines", "if (false)\n    Lines", "TestLinearPlain/bf16"},
	{"linear.cuh", "at[i] = (T *)a.y + (size_t(row) * a.out + feature);", "at[i] = (T *)(a.y + (size_t(row) * a.out + feature));", "TestLinear/nvfp4"},
	{"linear_tile.cuh", "kBytes = sizeof(T);", "kBytes = 4;", "TestLinear/nvfp4"},
	{"linear_tile.cuh", "if (a.y_bf16)\n    store(", "if (false)\n    store(", pickedWide},
	{"linear_tile.cuh", "else if (a.y_bf16)", "else if (false)", "TestLinear/nvfp4"},
	{"linear_tile.cuh", "8 * (tile0 + Tiles) <= a.rows", "8 * tile0 <= a.rows", "TestLinear/nvfp4"},
	{"linear_tile.cuh", "16 * (panel0 + Panels) <= a.out", "16 * panel0 <= a.out", "TestLinear/nvfp4"},
	{"linear_tile.cuh", "8 * (place(j / 2).y - place(0).y) + j % 2", "8 * (place(j / 2).y - place(0).y)", "TestLinear/nvfp4"},
	{"linear_tile.cuh", "i * kBytes * (long long)further", "i * kBytes * 8", "TestLinearGated/linear_q8_0_wide"},
	{"linear_tile.cuh", "[2 * i + j % 2] + more[m][i]", "[2 * i + j % 2] + more[0][i]", "TestLinear/nvfp4"},
	{"linear_tile.cuh", "from += blocks * kPieces", "from += 0", "TestLinear/nvfp4"},
	{"linear_tile.cuh", "__syncthreads();  // all warps are done with shared", "", "TestLinearWide/bf16"},
	{"linear_tile.cuh", "if (i / Across == m) own", "if (i / Across == 0) own", "TestLinear/nvfp4"},
	{"linear_tile.cuh", "if (16 * panel >= a.out) break;", "", "TestLinearGated/linear_nvfp4"},
	{"linear_tile.cuh", "many = min(Across, tiles - tile);", "many = Across;", "TestLinearGated/linear_nvfp4"},
	{"linear_tile.cuh", "__syncthreads();  // all warps are done with the ring", "", "TestLinearGated"},
	{"packed.cuh", "words ? 32 * i + lane : 4 * lane + i", "4 * lane + i", "TestLinearGated"},
	{"packed.cuh", "row / 8) * ceil_div(in, 32) + col / 32", "row / 8) + col / 32", "TestLinearGated"},
	{"linear_plain.cu", "feature = feature_of(a, min(", "feature = (min(", "TestLinearGated"},
	{"linear.cuh", "size_t(steps_of(a.in) / W::kUnit)", "size_t(a.in / 32 / W::kUnit)", "TestLinear"},
	{"linear.cuh", "step / a.x_steps) * 8", "0) * 8", "TestLinearRounded"},
	{"linear_tile.cuh", "from = min(units, int(blockIdx.z) * each);", "from = 0;", "TestLinear"},
	{"linear_tile.cuh", "there[i] ? i * (kThreads / kEach * uint32_t(stride)) : 0", "0", "TestLinear"},
	{"linear_tile.cuh", "next % W::kUnit == 0", "false", "TestLinear"},
	{"linear_tile.cuh", "if ((step + 1) % W::kUnit == 0) unit += W::kUnitBytes;", "", "TestLinear"},
	{"linear_tile.cuh", "p[i].base += skipped +", "p[i].base +=", "TestLinear"},
	{"linear_tile.cuh", "32 * step >= scaled", "step == from", "TestLinear"},
	{"linear_tile.cuh", ", sums[n] += 4;", ";", "TestLinear"},
	{"linear_tile.cuh", "step >= scaled_x", "step == from", "TestLinearRounded"},
	{"linear_tile.cuh", "a.w + expert * a.expert_bytes + skipped", "a.w + skipped", "TestExperts"},
	{"device.cuh", "emulation::wait_for_kernel();", "", "TestLinearBias"},
	{"linear.cuh", "blockIdx.y * P + i % P, (i", "blockIdx.y * P + i % P + *(const int *)a.w % 2, (i", "TestLinear"},
	{"linear.cuh", "a.experts == nullptr && 16 * panel < a.out", "a.experts == nullptr", "TestLinear"},
	{"linear_tile.cuh", "min(each, kUnits));", "kUnits);", "TestLinear"},
	{"linear_wide.cuh", "W::code(raw, i / 4, i % 4), power[i % 2]", "W::code(raw, i / 4, i % 4), power[0]", "TestLinearWide"},
	{"linear_wide.cuh", "W::fragment(raw, i / 4, i % 4), power[i % 2]", "W::fragment(raw, i / 4, i % 4), power[0]", "TestWidePowers"},
	{"linear_wide.cuh", "all >= 128", "all > 192", "TestWidePowers"},
	{"linear_wide.cuh", "a.expert_bytes + size_t(first) * W::kUnitBytes", "a.expert_bytes", "TestLinearMid"},
	{"linear_wide.cuh", "a.w + expert * a.expert_bytes", "a.w", "TestExperts"},
	{"linear_wide.cuh", "int many = min(left, S::kSteps);", "int many = S::kSteps;", "TestLinearMid"},
	{"linear_wide.cuh", "copy_wait<S::kAhead - 1>();", "copy_wait<S::kAhead>();", "TestLinearMid"},
	{"linear_wide.cuh", "__syncthreads();\n    const unsigned char *stage", "const unsigned char *stage", "TestLinearMid"},
	{"linear_wide.cuh", "if constexpr (!S::kBlocks) wgmma_wait<1>();", "", "TestLinearMid"},
	{"linear_wide.cuh", "wgmma_fence();", "", "TestLinearMid"},
	{"linear_wide.cuh", "if (h > 0) add((h - 1) % 2);", "if (h > 0) add(h % 2);", "TestLinearMid"},
	{"linear_wide.cuh", "b, h + k > 0);", "b, k > 0);", "TestLinearMid"},
	{"linear_wide.cuh", "add((S::kSteps - 1) % 2);", "", "TestLinearMid"},
	{"linear_wide.cuh", "until += columns;", "until = 1u << 31;", "TestLinearMid"},
	{"linear_wide.cuh", "rows.move(at * S::kSteps);", ";", "TestLinearMid"},
	{"linear_wide.cuh", "int(threadIdx.x % kEach * 16) < bytes ? 16 : 0", "16", "TestLinearMid"},
	{"linear_wide.cuh", "16 * size_t(begins[i])", "16 * size_t(begins[0])", "TestLinearMid"},
	{"linear_picks.cu", "e / 16 * 2 + e % 2", "e / 16 * 2", "TestPicks"},
	{"linear_picks.cu", "max(p.order[place], 0)", "place", "TestPicks"},
	{"linear_picks.cu", "max(p.order[place], 0)", "p.order[place]", "TestPicks"},
	{"linear_picks.cu", "* 4 * steps :", "* steps :", "TestPicks"},
	{"linear_picks.cu", "part < bytes ? 16 : 0", "16", "TestPicks"},
	{"linear_picks.cu", "next = Steps * (p.gathers ? 64 : 512)", "next = Steps * 512", "TestPicks"},
	{"linear_picks.cu", "item += gridDim.x", "item += gridDim.x + 1", pickedWide},                                              // a tile is left out
	{"linear_picks.cu", "half ? 2 * begin : begin)", "2 * begin)", pickedWide},                                                 // strips of whole blocks are left out
	{"linear_picks.cu", "min(2 * begin + 2, strips) * Panels", "panel + Panels", pickedWide},                                   // one of them is left out
	{"linear_picks.cu", "l, panel, half ? ~found.x : found.x", "l, panel, found.x", pickedWide},                                // whose expert is
	{"linear_picks.cu", "    until += before;\n", "", "TestPicksMany"},                                                         // items of the next 32 blocks of rows
	{"linear_picks.cu", "if (at.lap > 0) barrier_wait(there + 1, at.lap - 1);", "", pickedWide},                                // a stage is loaded over one that is read
	{"linear_picks.cu", "if (i == 0 || !half)", "if (i == 0)", pickedWide},                                                     // rows that are not loaded
	{"linear_picks.cu", "k / 2 < many ? 16 : 0", "16", pickedWide},                                                             // steps behind the last one
	{"linear_picks.cu", "? size_t(max(p.order[place], 0))", "? size_t(place)", pickedWide},                                     // other rows
	{"linear_picks.cu", "i > 0) release((at.stage > 0 ? at.stage : R::kStages) - 1)", "i >= 0) release(at.stage)", pickedWide}, // a stage that is not read yet
	{"linear_picks.cu", "if (128 * i >= scaled) {", "if (i == 0) {", "TestPicks/^linear_f8_e4m3_picks_wide$"},
	{"linear_picks.cu", "tile = R::kRows / 8 * t.block + n", "tile = R::kRows / 8 * t.block", pickedWide},
	{"linear_picks.cu", "if (first > 0 && t.half) return;", "if (t.half) return;", pickedWide},
	{"linear_picks.cu", "16 * (panel + 4 * (M - 1) + 1) <= a.out", "true", pickedWide},
	{"linear_wide.cuh", "kScaled && !kHalves ? 1 : 2);", "1);", "TestLinearMid"},
	{"linear_wide.cuh", "kScaled && !kHalves ? 1 : 2);", "kScaled ? 1 : 2);", "TestLinearWide/q4_0_bf16_0"},
	{"linear_wide.cuh", "(N / 2 * part * S::kSteps + h)", "h", "TestLinearWide/f8_e4m3_bf16_0"},
	{"linear_wide.cuh", "(S::kBlocks ? 0 : h) + k > 0", "k > 0", "TestLinearWide/f8_e4m3_bf16_0"},
	{"linear_wide.cuh", "[N * part + 4 * n + (lane & 3)]", "[4 * n + (lane & 3)]", "TestLinearWide/f8_e4m3_f8_e4m3_128"},
	{"linear_wide.cuh", "i < 4 ? (i % 2 ? e.y : e.x)", "true ? (i % 2 ? e.y : e.x)", "TestLinearWide/f8_e4m3_f8_e4m3_128"},
	{"linear_wide.cuh", "add(1, factors[(h + 1) % 2], nullptr);", "add(1, factors[h % 2], nullptr);", "TestLinearWide/q8_0_bf16_0"},
	{"linear_wide.cuh", "add(0, factors[h % 2], nullptr);", "add(0, factors[(h + 1) % 2], nullptr);", "TestLinearWide/q8_0_bf16_0"},
	{"linear_wide.cuh", "convert((h + 1) % S::kSteps);\n        wgmma_wait<1>();", "convert((h + 1) % S::kSteps);", "TestLinearWide/q8_0_bf16_0"},
	{"linear_wide.cuh", "if (h == S::kSteps - 1) stage = ring.next();", "if (h == 0) stage = ring.next();", "TestLinearWide/q8_0_bf16_0"},
	{"linear_wide.cuh", "add(1, factors[1], nullptr);", "", "TestLinearWide/q8_0_bf16_0"},
	{"linear_wide.cuh", "wgmma_wait<2>();", "wgmma_wait<3>();", "TestLinearWide/f8_e4m3_bf16_0"},
	{"linear_wide.cuh", "wgmma_wait<1>();\n      convert(0);", "convert(0);", "TestLinearWide/f8_e4m3_bf16_0"},
	{"linear_wide.cuh", "wgmma_wait<1>();\n      add(1, features.f, scales);", "add(1, features.f, scales);", "TestLinearWide/f8_e4m3_bf16_0"},
	{"linear_wide.cuh", "add(1, features.f, scales);", "add(1, features.f, stage + S::kW + S::kX);", "TestLinearWide/f8_e4m3_f8_e4m3_128"},
	{"linear_wide.cuh", "copy_scales(at + 1);", "", "TestLinearWide/f8_e4m3_f8_e4m3_128"},
	{"linear_wide.cuh", "ring.memory + ring.take + S::kW", "ring.memory + S::kW", "TestLinearWide/f8_e4m3_f8_e4m3_128"},
	{"linear_wide.cuh", "rows.move((at + 1) * S::kSteps);", "rows.move(at * S::kSteps);", "TestLinearWide/f8_e4m3_f8_e4m3_128"},
	{"linear_wide.cuh", "i / 16 * 2 + i / 2 % 2", "i / 16 * 2", "TestLinearWide/f8_e4m3_f8_e4m3_128"},
	{"linear_wide.cuh", "group = blockIdx.y / kBlocks", "group = blockIdx.y", "TestLinearGated"},
	{"linear_wide.cuh", "if (threadIdx.x == 0) *arrived = 0;", "", "TestLinearGated"},
	{"linear_wide.cuh", "o < 16; o <<= 1", "o < 4; o <<= 1", "TestLinearGated"},
	{"linear_wide.cuh", "row < a.rows ? from[4 * j]", "true ? from[4 * j]", "TestLinearGated"},
	{"linear_wide.cuh", "4 * group + lane % 16 / 4", "4 * group + lane / 8", "TestLinearGated"},
	{"weights.cuh", "e == 0 ? 0x40u : e == 255", "e == 255", "TestWidePowers"},
	{"linear_plain.cu", "first[4] = {u.x, v.x, u.y, v.y}", "first[4] = {u.x, u.y, v.x, v.y}", "TestLinearPlain"},
	{"linear_plain.cu", "word < row_words && 8 *", "8 *", "TestLinearPlain"},
	{"linear_plain.cu", "__syncthreads();", "", "TestLinearPlain"},
	{"linear_plain.cu", "int2{0, tile.tiles}", "int2{0, 0}", "TestLinearPlain"},
	{"linear_plain.cu", "multiply_e4m3(d, second, x.z, x.w);", "multiply_e4m3(d, second, x.w, x.z);", "TestLinearPlain"},
	{"linear_plain.cu", "fmaf(scales[j][i][c / 2]", "fmaf(scales[j][i][0]", "TestLinearPlain"},
	{"linear_plain.cu", "32 * step / a.scale_cols", "0", "TestLinearPlain"},
	{"linear_plain.cu", "step / a.x_steps) * 8", "0) * 8", "TestLinearPlain"},
	{"linear_plain.cu", "blockIdx.x == 0 && r < a.out", "blockIdx.x == 0", "TestLinearPlain"},
	{"linear_plain.cu", "a.bias + i % a.out", "a.bias + i / a.out", "TestLinearBias"},
	{"linear_plain.cu", "if (i >= a.n) return;", "", "TestLinearBias"},
	{"weights.cuh", "late ? 2 : 0", "0", "TestLinear"},
	{"weights.cuh", "* 0x1001u", "* 0x0101u", "TestLinear"},
	{"weights.cuh", "constexpr int kBytesOf<WeightsQ5_1> = 4;", "constexpr int kBytesOf<WeightsQ5_1> = 2;", "TestLinear"},
	{"weights.cuh", "v, 0x00800080u", "v, 0x00800000u", "TestLinear"},
	{"weights.cuh", "scales + 8 + step % 2", "scales + 8 + step / 4", "TestLinear"},
	{"weights.cuh", "4 - (4 * t + r)), 0x00100010u", "4 - (4 * r + t)), 0x00100010u", "TestLinear"},
	{"pack.cu", "((uint32_t *)y)[4 * i]", "((uint32_t *)y)[i]", "TestLinearPlain"},
	{"pack.cu", "uint16_t(w[i / 2] >> 16 * (i % 2))", "uint16_t(w[i % 2] >> 16 * (i / 2))", "TestLinearPlain"},
	{"pack.cu", "ceil_div(a.rows, kUnit) * kUnit", "a.rows", "TestPackRows"},
	{"pack.cu", "there = row < next;", "", "TestPackRows"},
	{"pack.cu", "max(most, scratch[w])", "max(most, scratch[0])", "TestPackX"},
	{"pack.cu", "over(4 * group, largest(0, e))", "over(4, largest(0, e))", "TestPackX"},
	{"pack.cu", "scratch[threadIdx.x >> 5] = most;\n  __syncthreads();", "scratch[threadIdx.x >> 5] = most;", "TestPackX"},
	{"pack.cu", "stores(a, blockIdx.y / 2, head)", "stores(a, blockIdx.y, head)", "TestStoreKV"},
	{"pack.cu", "if (!stored_beside(a.beside)) norm_pack16<false>", "stored_beside(a.beside); norm_pack16<false>", "TestStoreKV"},
	{"pack.cu", "gate = gates && from >= 0 ? gates + size_t(from) * a.in", "gate = gates && from >= 0 ? gates + size_t(row) * a.in", "TestPackX"},
	{"pack.cu", "return columns.read(c->other + row, s); }", "return columns.read(wide(), s); }", "TestPackX"},
	{"pack.cu", "normed(v, post, c->w_post, step)", "normed(v, 1.0f, c->w_post, step)", "TestPackX"},
	{"pack.cu", "a.pack.in % 32 == 0 && pairs == 0", "pairs == 0", "TestPackX"},
	{"pack.cu", "e.v[i] = at[4 * i];", "e.v[i] = at[i];", "TestPackX"},
	{"pack.cu", "columns.write(wide(), s, v);", "", "TestPackX"},
	{"pack.cu", "(n.pack.order ? n.pack.order[r] : r)", "r", "TestPackX"},
	{"pack.cu", "__syncthreads();  // the factors of all segments are there", "", "TestPackX"},
	{"pack.cu", "__syncthreads();  // the sums of all segments are there", "", "TestPackX"},
	{"pack.cu", "inverse[col / h.segment]", "inverse[0]", "TestPackX"},
	{"pack.cu", "inverse[step >> (h.segment >> 6)]", "inverse[step]", "TestPackX"},
	{"pack.cu", "if (in % 2 == 0 && col < in)", "if (col < in)", "TestPackX"},
	{"pack.cu", "n.plain && n.plain_words == 0", "n.plain", "TestPackX"},
	{"pack.cu", "b.words = a.plain_words - 1;", "b.words = a.plain_words;", "TestPackX"},
	{"pack.cu", "Numbers{n.residual + row, false}", "Numbers{n.residual + row, n.pack.x_bf16 != 0}", "TestPackX"},
	{"panels.cu", "for (int i = there + lane; i < n; i += 32)", "for (int i = n + lane; i < n; i += 32)", "TestPanels"},
	{"panels.cu", "int skew = Skewed ?", "int skew = !Skewed ?", "TestPanels"},
	{"panels.cu", "(into[i] & a.mask) >= a.least", "(into[i] & a.mask) > a.least", "TestPanelsNumberless"},
	{"panels.cu", "row * (a.row_bytes / 17) + block", "row + block", "TestMadePanels"},
	{"panels.cu", "a.half ? panel * 8 + r % 8 :", "a.half ? panel * 8 + r / 2 :", "TestPanelHalves"},
	{"panels.cu", "q.scales[row.half * q.half + row.in_half]", "q.scales[row.at + row.half]", "TestPanelHalves"},
	{"panels.cu", "if (scale == 0.0f) scale = 1.0f;", "", "TestQuantizePanels"},
	{"panels.cu", "__syncthreads();  // all warps are done with the chunk", "", "TestQuantizePanels"},
	{"attention.cuh", "copy_wait<kAhead>();", "", attentionCases},
	{"attention.cuh", "if (S::Stages > 1) __syncthreads();", "", attentionCases},
	{"attention.cuh", "__syncthreads();  // all warps are done with the keys in scratch", "", attentionCases},
	{"attention.cuh", "max(0, at - a.window + 1)", "max(0, at - a.window)", attentionCases},
	{"attention.cuh", "return at / a.window * a.window;", "return max(0, at - a.window + 1);", attentionCases},
	{"attention.cuh", "return at + 1;", "return at;", attentionCases},
	{"attention.cuh", "own == (p >= o.history)", "(!own || p >= o.history)", attentionCases},
	{"attention.cuh", "min(max(at + 1, __ldg(a.items + o.first + token)), end)", "max(at + 1, __ldg(a.items + o.first + token))", attentionCases},
	{"attention.cuh", "s.to = max(s.to, until);", "s.to = o.history + t + 1;", attentionCases},
	{"attention.cuh", "upper ? 0x3424 : 0x1404", "0x1404", attentionCases},
	{"attention.cuh", "keep[0] != 1.0f || keep[1] != 1.0f", "keep[0] != 1.0f", attentionCases},
	{"attention.cuh", "to_f16x2(lo, hi) : to_bf16x2(lo, hi)", "to_bf16x2(lo, hi) : to_bf16x2(lo, hi)", attentionCases},
	{"attention.cu", "slot, chunk / 2)", "slot, chunk % 2)", attentionCases},
	{"attention.cu", "p.block + 8 * (chunk % 2)", "p.block", attentionCases},
	{"attention.cu", "pages.of_run(mine, r)", "pages.of_run(mine, 0)", attentionCases},
	{"attention.cu", "(S::V < S::D ? blockIdx.y / p.kv_heads * S::V : 0)", "0", attentionCases},
	{"attention.cuh", "base + S::Keys <= o.history && ", "", attentionCases},
	{"attention.cuh", "base >= o.skip * p.block;", "true;", attentionCases},
	{"attention.cu", "p.head_dim == S::D && p.key_dim == S::D", "p.head_dim == S::D", attentionCases},
	{"attention.cu", "__syncthreads();  // all warps are done with the previous tile", "", attentionCases},
	{"attention.cu", "s = (s + __shfl_xor_sync(kAllLanes, s, kWideKeys)) * a.scale", "s = s * a.scale", attentionCases},
	{"attention.cu", "missing < blocks ? missing * a.block : position", "position", "TestAhead"},
	{"attention.cuh", "rows.sum[i] *= keep[i];", "", attentionCases},
	{"attention.cuh", "runs = ceil_div(ceil_div(*to, kSplitKeys) - first, splits)", "runs = (ceil_div(*to, kSplitKeys) - first) / splits", attentionCases},
	{"attention.cuh", "a.softcap * tanhf(s[j][c] / a.softcap)", "s[j][c]", attentionCases},
	{"attention.cu", "key_to + i * tall * S::kOwn, made}", "key_to + i * tall * S::kOwn, false}", attentionCases},
	{"attention.cuh", "if (count + 1 < unsigned(w.splits * parts)) return;", "if (count + 2 < unsigned(w.splits * parts)) return;", listCases},
	{"attention.cuh", "if (threadIdx.x == 0) *arrived = 0;", "", listCases},
	{"attention.cuh", "__syncthreads();  // all warps are done with the piece's shared memory", "", listCases},
	{"attention.cuh", "* a.most + w.split;", "* a.most;", listCases},
	{"attention.cuh", "lane + 32 < w.splits ? stats[lane + 32] : none", "none", listCases},
	{"attention.cuh", "to[d / 4 * step + d % 4 * next]", "to[d * next]", listCases},
	{"attention.cuh", "i = at + gridDim.x;", "i = at + 2 * gridDim.x;", wideListCases},
	{"attention.cuh", "kLists && (Decode || V <= 128)", "kLists && V <= 128", wideListCases},
	{"attention.cuh", "column = blockIdx.y / p.kv_heads * S::Parts * S::V", "column = 0", wideListCases},
	{"attention.cuh", "row0 + i < row1 ? (row0 + i) / group : -1", "(row0 + i) / group", wideListCases},
	{"attention.cu", "value_to + key * S::kV}", "value_to + i % each * tall * S::kV}", wideListCases},
	{"attention.cuh", "token, col + 2)]", "token, col)]", listCases},
	{"attention.cuh", "a.packed != nullptr && w.splits == 1", "a.packed != nullptr", attentionCases},
	{"attention.cu", "a.gate ? v * sigmoid(__ldg(a.gate + at * d + i)) : v", "v", attentionCases},
	{"attention.cu", "joined(i), joined(i + 1)", "joined(i + 1), joined(i)", attentionCases},
	{"attention.cuh", "s.sure_to = min(s.sure_to, until);", "", attentionCases},
	{"attention.cuh", "t < paged ? min(span.sure_to, o.history) : span.sure_to", "span.sure_to", attentionCases},
	{"attention.cuh", "base >= span.sure_from && ", "", attentionCases},
	{"attention.cuh", " && (t < paged || base >= o.history)", "", attentionCases},
	{"attention.cuh", "if (a.q_stored == kF32) {", "if (true) {", attentionCases},
	{"attention_wide.cu", "if (turn.lap > 0) barrier_wait(b + 1, turn.lap - 1);", "", wideCases},
	{"attention_wide.cu", "barrier_wait(barriers + kStageBarriers * turn.stage + kKeysThere, turn.lap);", "", wideCases},
	{"attention_wide.cu", "barrier_wait(barriers + kStageBarriers * before.stage + kValuesThere, before.lap);", "", wideCases},
	{"attention_wide.cu", "shared_for_wgmma();\n      uint64_t left", "uint64_t left", wideCases},
	{"attention_wide.cu", "shared_for_wgmma();\n    meet_others();", "shared_for_wgmma();", wideCases},
	{"attention_wide.cu", "wgmma_wait<1>();", "", wideCases},
	{"attention_wide.cu", "wgmma_wait<0>();\n      group_sums(out);", "group_sums(out);", wideCases},
	{"attention_wide.cu", "rows.sum[i] *= keep[i];", "", wideCases},
	{"attention_wide.cu", "out[i] *= keep[i % 4 / 2];", "out[i] *= keep[0];", wideCases},
	{"attention_wide.cu", "min(rows.until[i], end)", "rows.until[i]", wideCases},
	{"attention_wide.cu", "base >= w.span.sure_from && ", "", wideCases},
	{"attention_wide.cu", "min(w.span.sure_to, end)", "w.span.sure_to", wideCases},
	{"attention_wide.cu", "(S::V / 8 * S::kAcross)", "0", wideCases},
	{"attention_wide.cu", "a.softcap > 0.0f ? kLog2e : a.scale * kLog2e", "a.scale * kLog2e", wideCases},
	{"attention_wide.cu", "to[d / 4 * step + d % 4 * next]", "to[d * next]", wideCases},
	{"attention_wide.cu", "++stage < Stages", "++stage <= Stages", wideCases},
	{"attention_wide.cu", "if (a.q_stored == kF32)", "if (true)", wideCases},
	{"attention_wide.cu", "Barrier *b = barriers + kStageBarriers * turn.stage + what;", "Barrier *b = barriers + what;", wideCases},
	{"attention_wide.cu", "if (d0 == 0 && behind.lap > 0) barrier_wait(b + 1, behind.lap - 1);", "", eightCases},
	{"attention_wide.cu", "copy_wait<1>();", "copy_wait<2>();", eightCases},
	{"attention_wide.cu", "copy_wait<0>();\n      widen();", "widen();", eightCases},
	{"attention_wide.cu", "(columns ? 128 : S::kAcross)) =", "128) =", eightCases},
	{"attention_wide.cu", "as_halves<S::Store, true>(x.z)", "as_halves<S::Store, false>(x.z)", eightCases},
	{"attention_wide.cu", "by_columns = what == kKeysThere && !own;", "by_columns = what == kKeysThere;", eightCases},
	{"attention_wide.cu", "if (d0 + S::kAtOnce == S::D) {", "{", eightCases},
	{"attention_wide.cu", "if (++part < 2 * S::D / S::kAtOnce) return;", "if (++part < 2) return;", eightCases},
	{"attention_latent.cu", "__syncthreads();  // the other warp's scores are there", "", latentCases},
	{"attention_latent.cu", "product<S>(t[j][1], second, b[2], b[3]);", "product<S>(t[j][1], second, b[3], b[2]);", latentCases},
	{"attention_latent.cu", "step(kLatent + d,", "step(d,", latentCases},
	{"attention_latent.cu", "position < o.history) from", "position < o.history + 1) from", latentCases},
	{"attention_latent.cu", "position < o.history + o.count; };", "true; };", latentCases},
	{"attention_latent.cu", "bool padded = d < whole_steps(p.head_dim);", "bool padded = d < p.head_dim;", latentCases},
	{"attention_latent.cu", "dim < whole_steps(p.key_dim)", "dim < p.key_dim", latentCases},
	{"attention_latent.cu", "+ (threadIdx.x >> 5 & 1) * (kLatent / 2)", "", latentCases},
	{"attention_latent.cu", "half * mine + j) * 32", "j) * 32", latentCases},
	{"attention_latent.cu", "slot, chunk / 2)", "slot, chunk % 2)", "TestLatentAttention/^each$"},
	{"attention_latent.cu", " && p.head_dim == kLatent && p.key_dim == kRotated", "", latentCases},
	{"attention.cuh", "w = warp + S::Parts;", "w = warp + 1;", latentCases},
	{"attention.cuh", "S::Parts > 1 ? warp % S::Parts * S::V : 0", "0", latentCases},
	{"attention.cu", "if (!a.latent) values", "values", latentCases},
	{"attention.cu", "own * a.latent + j - d", "own * d + j - d", latentCases},
	{"head_linear.cu", "__syncthreads();  // all warps are done with the tile", "", "TestHeadLinear"},
	{"head_linear.cu", "fetch_heads<W::kHalf, 8 * N, Steps>(a, row0, 32 * step0, tile);\n    __syncthreads();", "fetch_heads<W::kHalf, 8 * N, Steps>(a, row0, 32 * step0, tile);", "TestHeadLinear"},
	{"head_linear.cu", "if (left > 1) v.y = __ldg(from + 1);", "v.y = __ldg(from + 1);", "TestHeadLinear"},
	{"head_linear.cu", "min(step0 + s, steps - 1)", "step0", "TestHeadLinear"},
	{"head_linear.cu", "if (feature < a.out && row < a.rows)", "if (row < a.rows)", "TestHeadLinear"},
	{"store.cuh", "a.latent ? j : rotary_dim(p, j)", "rotary_dim(p, j)", "TestStoreKV"},
	{"rope.cu", "a.interleaved ? 1 : half", "half", "TestLatentRope"},
	{"rope.cu", "if (warp == a.heads % warps)", "if (warp == 0 && a.heads > 2)", "TestLatentRope"},
	{"store.cuh", "__syncthreads();", "", "TestStoreKV"},
	{"store.cuh", "rotary_dim(p, j)", "j", "TestStoreKV"},
	{"norm.cu", "a.offset + a.w[i]", "a.w[i]", "TestNorm"},
	{"norm.cu", "r[i] = v = r[i] + v;", "v = r[i] + v;", "TestNorm"},
	{"norm.cu", "Numbers in = r ? Numbers{r, false} : x;", "Numbers in = r ? Numbers{r, x.bf16} : x;", "TestNorm"},
	{"norm.cu", "Numbers{a.x, a.x_bf16 != 0}[i]", "Numbers{a.x, false}[i]", "TestElements"},
	{"rope.cu", "for (int i = a.rotary +", "for (int i = a.head_dim +", "TestRope"},
	{"rope.cu", "a.interleaved ? i / 2 : i % half", "i % half", "TestRope"},
	{"rope.cu", "S == kF32 || S == kBF16 ? S : kF16", "S == kF32 ? S : kBF16", "TestRope"},
	{"rows.cuh", "(bf16 ? 2 : 4) * n", "4 * n", "TestNorm"},
	{"rows.cuh", "return make_float2(from_bf16(uint16_t(w)), from_bf16(uint16_t(w >> 16)));", "return make_float2(from_bf16(uint16_t(w >> 16)), from_bf16(uint16_t(w)));", "TestPackX"},
	{"rows.cuh", "from_bf16(uint16_t(w.y >> 16))", "from_bf16(uint16_t(w.y))", "TestGLU"},
	{"experts.cu", "v == *key && other < *id", "v == *key && other > *id", "TestRoute"},
	{"experts.cu", "second = fmaxf(second, fminf(first, v));", "second = fmaxf(second, v);", "TestRoute"},
	{"experts.cu", "a.correction ? a.correction[e] : 0.0f", "0.0f", "TestRoute"},
	{"experts.cu", "ceil_div(count[e], a.block)", "count[e] / a.block", "TestExperts"},
	{"experts.cu", "rows += row != nullptr;", "rows++;", "TestExpertsF32"},
	{"experts.cu", "a.placed ? row : size_t(from)", "size_t(from)", "TestExpertsF32"},
	{"experts.cu", "__syncthreads();  // what is written next is the other", "//", "TestExpertsF32"},
	{"experts.cu", "if (a.y_bf16)", "if (a.x_bf16)", "TestExperts"},
	{"sample.cuh", "w < r.min_p || v < least", "v < least", "TestSample"},
	{"sample.cuh", "v == edge && i <= edge_index", "v == edge", "TestSample"},
	{"sample.cuh", "if (i >= r.prompt) atomicAdd", "atomicAdd", "TestSample"},
	{"sample.cuh", "base < to; base += kCounters", "base < kCounters; base += kCounters", "TestSample"},
	{"sample.cuh", "w < a.min_p ? Sum(0) : fixed(w)", "fixed(w)", "TestSample"},
	{"sample.cu", "if (arrived && threadIdx.x == 0) *arrived = 0;", "", "TestSample"},
	{"sample.cu", "if (arrived && !is_last_block(arrived, &found)) return;", "if (blockIdx.x > 0) return;", "TestSample"},
	{"sample.cu", "int certain = min(e.k, e.lo);", "int certain = e.k;", "TestSample"},
	{"sample.cu", "better + equal >= unsigned(r.top_k)", "better + equal > unsigned(r.top_k)", "TestSample"},
	{"sample.cu", "if (more < target && more + same >= target)", "if (more <= target && more + same > target)", "TestSample"},
	{"sample.cu", "if (in < ties)", "if (false)", "TestSample"},
	{"sample.cu", "unsigned better = e.k_ahead", "unsigned better = 0", "TestSample"},
	{"sample.cu", "Sum more = e.lo_above", "Sum more = 0", "TestSample"},
	{"sample.cu", "target - before, scratch", "target, scratch", "TestSample"},
	{"sample.cu", "if (b.token >= w.from && b.token < w.to)", "", "TestSample"},
	{"sample.cu", "w.edits || w.allowed != nullptr", "w.edits", "TestSample"},
	{"sample.cu", "candidates <= kCandidates", "candidates <= 1 << 20", "TestSample"},
	{"sample.cu", "b.value == last.value && b.index > last.index", "false", "TestSample"},
	{"delta.cu", "float behind = -e * ik", "float behind = -ik", "TestDelta"},
	{"delta.cu", "|| (sampled >> (t - run) & 1)", "", "TestDelta"},
	{"delta.cu", "for (int o = 4; o < 32; o <<= 1) v +=", "for (int o = 8; o < 32; o <<= 1) v +=", "TestDelta"},
	{"delta.cu", "kShortest) * float(n)", "kShortest)", "TestDelta"},
	{"delta.cu", "position % s.copies", "position * 0", "TestDelta"},
	{"delta.cu", "begin ? begin : own", "begin ? own : own", "TestConv"},
	{"delta.cu", "max(end - s.rows, start - keep), end", "start, end", "TestConv"},
	{"delta.cu", "write(mark_at(s, m[0]), m[1] - keep, m[1])", "write(mark_at(s, m[0]), end - keep, end)", "TestConv"},
	{"delta.cu", "(start / kChunk + i) * kChunk - start", "i * kChunk", "TestDeltaChunks"},
	{"delta.cu", "multiply_f16(x, l.up, r.low[0], r.low[1]);", "", "TestDeltaChunks"},
	{"delta.cu", "multiply_f16(y, l.low, r.up[2], r.up[3]);", "", "TestDeltaChunks"},
	{"delta.cu", "first *= beta[at][row] * kOver", "first *= kOver", "TestDeltaChunks"},
	{"delta.cu", "if (e >= warp) multiply(sum[0]", "if (e > warp) multiply(sum[0]", "TestDeltaChunks"},
	{"delta.cu", "__syncthreads();  // the blocks of all warps are there", "", "TestDeltaChunks"},
	{"delta.cu", "__syncthreads();  // all threads are done with the keys, or with the previous head", "", "TestDeltaChunks"},
	{"delta.cu", "if (of + warp < group)", "if (of == 0)", "TestDeltaChunks"},
	{"delta.cu", "by = max(1, min(min(by, 253)", "by = min(by, 127), by = max(1, min(min(by, 253)", "TestDeltaChunks"},
	{"delta.cu", "y[x][2 * z + e] *= faded * factor[z]", "y[x][2 * z + e] *= faded", "TestDeltaChunks"},
	{"delta.cu", "__syncthreads();  // all threads are done with the chunk", "", "TestDeltaChunks"},
	{"delta.cu", "float f = j <= t ?", "float f = true ?", "TestDeltaChunks"},
	{"delta.cu", "if (wanted[t] == 0 && t < c.count - 1) continue;", "if (t < c.count - 1) continue;", "TestDeltaChunks"},
	{"delta.cu", "if (first == last || by_chunks(a, last - first)) return;", "if (first == last) return;", "TestDeltaChunks"},
	{"vision.cu", "(size_t(a.at[0]) + blockIdx.x)", "size_t(blockIdx.x)", "TestMerge"},
	{"vision.cu", "if (most == 0)", "if (false)", "TestResample"},
	{"vision.cu", "a.down[t] / a.size == down) at", "down >= 0) at", "TestPool"},
	{"vision.cu", "if (from < 0) return;", "", "TestMerge"},
	{"adapt.cu", "a.tokens ? a.tokens[row] : row", "row", "TestAdapt"},
	{"adapt.cu", "c >= a.ends[module]", "c > a.ends[module]", "TestAdapt"},
	{"adapt.cu", "(size_t(s) * mids + first) * a.in", "size_t(first) * a.in", "TestAdapt"},
	{"adapt.cu", "if (slots[r] != s) continue;\n      a.y", "a.y", "TestAdapt"},
	{"draft.cu", "before && drawn != -2 && token == drawn", "drawn != -2 && token == drawn", "TestDraft"},
}

// broken returns the source of m's file with the change of m.
func (m mutant) broken(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile(m.file)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(b), m.old) {
		t.Fatalf("%s does not hold %q", m.file, m.old)
	}
	return strings.Replace(string(b), m.old, m.new, 1)
}

// TestMutantsApply checks that the sources contain the text that mutants replace. TestMutants,
// which takes longer, checks that tests find the faults.
func TestMutantsApply(t *testing.T) {
	for _, m := range mutants {
		m.broken(t)
	}
}

// killed counts a file's mutants that made a test fail in TestMutants.
var killed = map[string]int{
	"adapt.cu":            4,
	"attention.cu":        14,
	"attention.cuh":       36,
	"attention_latent.cu": 11,
	"delta.cu":            22,
	"device.cuh":          1,
	"attention_wide.cu":   26,
	"draft.cu":            1,
	"experts.cu":          8,
	"head_linear.cu":      5,
	"linear.cuh":          22,
	"linear_plain.cu":     12,
	"linear_tile.cuh":     26,
	"linear_picks.cu":     20,
	"linear_wide.cuh":     41,
	"norm.cu":             4,
	"pack.cu":             24,
	"packed.cuh":          2,
	"panels.cu":           8,
	"rope.cu":             5,
	"rows.cuh":            3,
	"sample.cu":           13,
	"sample.cuh":          5,
	"store.cuh":           3,
	"vision.cu":           4,
	"weights.cuh":         7,
}

// mutantTable returns the section of docs/kernels.md about mutants.
func mutantTable() string {
	count := map[string]int{}
	for _, m := range mutants {
		count[m.file]++
	}
	var b strings.Builder
	b.WriteString(`
## Mutants

Do the tests see a wrong kernel? ` + "`TestMutants`" + ` breaks the source in one place at a time (a barrier left out, a bound moved, a term
dropped) and runs the test that has to fail, on the emulation: ` + "`go test -tags soak -run TestMutants ./kernels/cuda`" + `, which ` + "`make soak`" + `
includes. *Killed* are those that a test was seen to fail on. The places were chosen by hand; a mutant that changes no result is
not among them.

| source | mutants | killed |
|---|---|---|
`)
	for _, file := range slices.Sorted(maps.Keys(count)) {
		fmt.Fprintf(&b, "| `%s` | %d | %d |\n", file, count[file], killed[file])
	}
	return b.String()
}
