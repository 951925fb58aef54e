// An emulation of cuBLASLt: the part of the library that vapp calls, on the emulated driver. It
// computes products on the host, in their turn on the stream. It refuses what would be wrong on
// a device: descriptors that do not fit, pointers with less alignment than the algorithm was
// chosen for, an algorithm of another shape, a workspace that is too small, and the first
// product of a shape during a capture. E4M3 is multiplied with a scale for each row of both
// operands (outer vectors), or for 128x128 of A and 128 of a row of B; versions from 12.9 on
// support that only for compute capability 9.0. Results are float32, or bf16 for bf16 and E4M3; then
// parts of sums are bf16 too, unless the preference excludes it. VAPP_EMULATED_CUBLASLT has settings, separated
// by commas and read when a handle is made: version=110400, create=1 and matmul=13 (a status
// that the call returns), algorithms=none, wrong=1 (every product has 1 more than it should), fails=1 (the first algorithm of each shape is offered and
// refuses to run; 3: all do). It offers three algorithms for a shape, which give the same bits.
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <deque>
#include <mutex>
#include <set>
#include <string>

#define API extern "C" __attribute__((visibility("default")))

namespace {

enum Status { kSuccess = 0, kNotInitialized = 1, kInvalidValue = 7, kExecutionFailed = 13, kInternalError = 14, kNotSupported = 15 };
enum Type { kF32 = 0, kF16 = 2, kBF16 = 14, kE4M3 = 28 };
constexpr int32_t kScalar = 0, kOuterVector = 3, kVec128 = 4, kBlk128x128 = 5;
constexpr int kCompute32F = 68;
constexpr uint32_t kEpilogueDefault = 1, kEpilogueBias = 4;

struct Desc {
  int compute, scale;
  int32_t transposed[2] = {0, 0};
  uint32_t epilogue = kEpilogueDefault;
  uint64_t bias = 0;
  int32_t bias_type = -1;  // that of D
  uint64_t scales[2] = {0, 0};
  int32_t scaled[2] = {kScalar, kScalar};
};
struct Layout {
  int type;
  uint64_t rows, cols;
  int64_t ld;
};
struct Preference {
  uint64_t workspace = 0;
  uint32_t reduction = 7;  // 1 and 4: parts of sums may have the type of D, 2: float32
  uint32_t aligned[4] = {256, 256, 256, 256};
};
struct Algorithm {
  uint64_t shape, workspace, aligned[4], of[2];
};
struct Heuristic {
  Algorithm algorithm;
  size_t workspace;
  int status;
  float waves;
  int reserved[4];
};
static_assert(sizeof(Algorithm) == 64 && sizeof(Heuristic) == 96, "as cublasLt.h has them");

// Product is a call of cublasLtMatmul.
struct Product {
  int type, type_d;
  uint64_t m, n, k;
  int64_t lda, ldb, ldd;
  uint64_t a, b, d, scale_a, scale_b;
  bool blocks, rounds;  // rounds: parts of sums are bf16
  uint64_t bias, workspace, workspace_bytes;
  // The number of scales.
  uint64_t scales_a() const { return blocks ? (k + 511) / 512 * 4 * ((m + 127) / 128) : m; }
  uint64_t scales_b() const { return blocks ? (k + 127) / 128 * n : n; }
  bool operator==(const Product &o) const {
    return type == o.type && type_d == o.type_d && m == o.m && n == o.n && k == o.k && lda == o.lda && ldb == o.ldb && ldd == o.ldd && a == o.a && b == o.b && d == o.d &&
           scale_a == o.scale_a && scale_b == o.scale_b && blocks == o.blocks && rounds == o.rounds && bias == o.bias && workspace == o.workspace && workspace_bytes == o.workspace_bytes;
  }
};

std::mutex everything;
std::deque<Product> products;  // not freed: graphs launch them again
std::set<uint64_t> loaded;     // shapes whose kernels are on the device
bool no_algorithms = false;
constexpr int kAlgorithms = 3;
long failing = 0;  // so many of them refuse to run
int created = 0, multiplied = 0;
float wrong = 0.0f;  // is added to every product
int (*host)(void *, const char *(*)(void *), void *) = nullptr;
int (*inside)(uint64_t, size_t) = nullptr;
int (*capturing)(void *) = nullptr;
int (*attribute_of)(int *, int, int) = nullptr;  // of a device

// setting returns a number of VAPP_EMULATED_CUBLASLT, or its default.
long setting(const char *name, long without) {
  const char *text = getenv("VAPP_EMULATED_CUBLASLT");
  std::string all = std::string(",") + (text ? text : ""), key = std::string(",") + name + "=";
  size_t at = all.find(key);
  return at == std::string::npos ? without : atol(all.c_str() + at + key.size());
}

// size returns the bytes of a number.
uint64_t size(int type) { return type == kE4M3 ? 1 : type == kF32 ? 4 : 2; }

float wide_e4m3(uint8_t v) {
  int exponent = v >> 3 & 15, low = v & 7;
  if ((v & 0x7f) == 0x7f) return __builtin_nanf("");
  float f = exponent == 0 ? float(low) / 512.0f : __builtin_ldexpf(float(8 + low), exponent - 10);
  return v & 0x80 ? -f : f;
}

float wide(int type, uint16_t v) {
  uint32_t bits = uint32_t(v) << 16;
  if (type == kF16) {
    uint32_t sign = uint32_t(v & 0x8000) << 16, exponent = v >> 10 & 31, low = v & 1023;
    if (exponent == 0) {
      float small = float(low) * (1.0f / 16777216.0f);
      return sign ? -small : small;
    }
    bits = sign | (exponent == 31 ? 255u : exponent + 112) << 23 | low << 13;
  }
  float f;
  memcpy(&f, &bits, 4);
  return f;
}

// bf16 returns the nearest bf16, of two the even one.
uint16_t bf16(float f) {
  uint32_t bits;
  memcpy(&bits, &f, 4);
  if (f != f) return uint16_t(bits >> 16 | 64);
  return uint16_t((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

const char *multiply(void *data) {
  const Product &p = *(const Product *)data;
  const uint64_t bytes = size(p.type);
  if (!inside(p.a, bytes * ((p.m - 1) * p.lda + p.k)) || !inside(p.b, bytes * ((p.n - 1) * p.ldb + p.k)) || !inside(p.d, size(p.type_d) * ((p.n - 1) * p.ldd + p.m)) ||
      (p.bias && !inside(p.bias, 4 * p.m)) || (p.scale_a && (!inside(p.scale_a, 4 * p.scales_a()) || !inside(p.scale_b, 4 * p.scales_b()))) ||
      !inside(p.workspace, p.workspace_bytes))
    return "cublasLtMatmul: an operand is outside of the device's memory";
  memset((void *)p.workspace, 0xff, p.workspace_bytes);  // no other product may use it now
  auto at = [&](uint64_t from, uint64_t i) { return p.type == kE4M3 ? wide_e4m3(((const uint8_t *)from)[i]) : wide(p.type, ((const uint16_t *)from)[i]); };
  float *row = new float[p.k];
  for (uint64_t n = 0; n < p.n; n++) {
    for (uint64_t k = 0; k < p.k; k++) row[k] = at(p.b, n * p.ldb + k);
    for (uint64_t m = 0; m < p.m; m++) {
      const float *scale_a = (const float *)p.scale_a, *scale_b = (const float *)p.scale_b;
      float sum = 0.0f;
      for (uint64_t from = 0; from < p.k; from += 128) {
        float part = 0.0f;
        for (uint64_t k = from; k < p.k && k < from + 128; k++) part += at(p.a, m * p.lda + k) * row[k];
        sum += p.blocks ? part * (scale_a[m / 128 * ((p.k + 511) / 512 * 4) + from / 128] * scale_b[from / 128 * p.n + n]) : part;
        if (p.rounds) sum = wide(kBF16, bf16(sum));
      }
      if (p.scale_a && !p.blocks) sum *= scale_a[m] * scale_b[n];
      sum = sum + (p.bias ? ((const float *)p.bias)[m] : 0.0f) + wrong;
      if (p.type_d == kBF16)
        ((uint16_t *)p.d)[n * p.ldd + m] = bf16(sum);
      else
        ((float *)p.d)[n * p.ldd + m] = sum;
    }
  }
  delete[] row;
  return nullptr;
}

// scales_fit reports whether scales fit the number types. 16-bit numbers have none; E4M3 has a
// vector for each operand or blocks of 128, on a device that supports them. Matrices of E4M3
// have whole 16 bytes, and a bias would have to be bf16.
bool scales_fit(const Desc *o, const Layout *a, const Layout *d) {
  if (a->type != kE4M3) return o->scales[0] == 0 && o->scales[1] == 0 && o->scaled[0] == kScalar && o->scaled[1] == kScalar;
  int major = 0, minor = 0;
  bool vectors = o->scaled[0] == kOuterVector && o->scaled[1] == kOuterVector && o->scales[0] % 4 == 0 && o->scales[1] % 4 == 0;
  bool blocks = o->scaled[0] == kBlk128x128 && o->scaled[1] == kVec128 && o->scales[0] % 16 == 0 && o->scales[1] % 16 == 0 && d->cols % 4 == 0;
  bool whole = a->rows % 16 == 0 && size(d->type) * d->ld % 16 == 0 && size(d->type) * d->rows % 16 == 0 && o->epilogue == kEpilogueDefault;
  return o->scales[0] && o->scales[1] && (vectors || blocks) && whole && attribute_of(&major, 75, 0) == 0 && attribute_of(&minor, 76, 0) == 0 && major == 9 &&
         minor == 0;
}

// fits reports whether there are algorithms for the product of these descriptors. A D in bf16
// is not for numbers in fp16, and its bias would have to be bf16, which multiply does not add.
bool fits(const Desc *o, const Layout *a, const Layout *b, const Layout *c, const Layout *d) {
  auto rows16 = [](const Layout *l) { return l->ld >= int64_t(l->rows) && size(l->type) * l->ld % 16 == 0; };
  return o && a && b && c && d && o->compute == kCompute32F && o->scale == kF32 && o->transposed[0] == 1 && o->transposed[1] == 0 &&
         (a->type == kBF16 || a->type == kF16 || a->type == kE4M3) && scales_fit(o, a, d) && b->type == a->type && c->type == d->type &&
         (d->type == kF32 || (d->type == kBF16 && a->type != kF16)) && a->rows == b->rows && d->rows == a->cols &&
         d->cols == b->cols && c->rows == d->rows && c->cols == d->cols && c->ld == d->ld && d->ld >= int64_t(d->rows) && rows16(a) && rows16(b) &&
         (o->epilogue == kEpilogueDefault || (o->epilogue == kEpilogueBias && d->type == kF32 && o->bias && (o->bias_type == -1 || o->bias_type == kF32)));
}

uint64_t shape_of(const Desc *o, const Layout *a, const Layout *b, const Layout *d) {
  uint64_t h = 1469598103934665603ull;
  for (uint64_t v : {uint64_t(a->type), a->rows, a->cols, uint64_t(a->ld), b->cols, uint64_t(b->ld), uint64_t(d->ld), uint64_t(o->epilogue), uint64_t(o->scaled[0]),
                     uint64_t(d->type)})
    h = (h ^ v) * 1099511628211ull;
  return h;
}

}  // namespace

API size_t cublasLtGetVersion() { return size_t(setting("version", 130000)); }
API const char *cublasLtGetStatusName(int status) {
  switch (status) {
    case kNotInitialized: return "CUBLAS_STATUS_NOT_INITIALIZED";
    case 3: return "CUBLAS_STATUS_ALLOC_FAILED";
    case kInvalidValue: return "CUBLAS_STATUS_INVALID_VALUE";
    case kInternalError: return "CUBLAS_STATUS_INTERNAL_ERROR";
    case kExecutionFailed: return "CUBLAS_STATUS_EXECUTION_FAILED";
    case kNotSupported: return "CUBLAS_STATUS_NOT_SUPPORTED";
  }
  return "CUBLAS_STATUS_UNKNOWN";
}
API int cublasLtCreate(void **handle) {
  std::lock_guard<std::mutex> lock(everything);
  if (long status = setting("create", 0)) return int(status);
  const char *name = getenv("VAPP_LIBCUDA"), *text = getenv("VAPP_EMULATED_CUBLASLT");
  void *driver = name ? dlopen(name, RTLD_NOW | RTLD_NOLOAD) : nullptr;
  if (driver == nullptr) return kNotInitialized;
  *(void **)&host = dlsym(driver, "vapp_emulated_host");
  *(void **)&inside = dlsym(driver, "vapp_emulated_inside");
  *(void **)&capturing = dlsym(driver, "vapp_emulated_capturing");
  *(void **)&attribute_of = dlsym(driver, "cuDeviceGetAttribute");
  if (host == nullptr || inside == nullptr || capturing == nullptr || attribute_of == nullptr) return kNotInitialized;
  no_algorithms = text && strstr(text, "algorithms=none");
  multiplied = int(setting("matmul", 0));
  failing = setting("fails", 0);
  wrong = float(setting("wrong", 0));
  created++;
  *handle = &created;
  return kSuccess;
}
API int cublasLtDestroy(void *handle) {
  std::lock_guard<std::mutex> lock(everything);
  if (handle != &created || created == 0) return kInvalidValue;
  if (--created == 0) {
    products.clear();
    loaded.clear();
  }
  return kSuccess;
}
API int cublasLtMatmulDescCreate(void **desc, int compute, int scale) {
  *desc = new Desc{compute, scale};
  return kSuccess;
}
API int cublasLtMatmulDescDestroy(void *desc) {
  delete (Desc *)desc;
  return kSuccess;
}
API int cublasLtMatmulDescSetAttribute(void *desc, int attribute, const void *from, size_t n) {
  Desc *o = (Desc *)desc;
  void *to = nullptr;
  size_t size = 4;
  switch (attribute) {
    case 3: to = &o->transposed[0]; break;
    case 4: to = &o->transposed[1]; break;
    case 7: to = &o->epilogue; break;
    case 8: to = &o->bias, size = 8; break;
    case 17: to = &o->scales[0], size = 8; break;
    case 18: to = &o->scales[1], size = 8; break;
    case 26: to = &o->bias_type; break;
    case 31: to = &o->scaled[0]; break;
    case 32: to = &o->scaled[1]; break;
  }
  if (to == nullptr || n != size) return kInvalidValue;
  if (attribute >= 31 && setting("version", 130000) < 120900) return kInvalidValue;  // scales came in 12.8, vectors later
  memcpy(to, from, n);
  return kSuccess;
}
API int cublasLtMatrixLayoutCreate(void **layout, int type, uint64_t rows, uint64_t cols, int64_t ld) {
  *layout = new Layout{type, rows, cols, ld};
  return kSuccess;
}
API int cublasLtMatrixLayoutDestroy(void *layout) {
  delete (Layout *)layout;
  return kSuccess;
}
API int cublasLtMatmulPreferenceCreate(void **preference) {
  *preference = new Preference;
  return kSuccess;
}
API int cublasLtMatmulPreferenceDestroy(void *preference) {
  delete (Preference *)preference;
  return kSuccess;
}
API int cublasLtMatmulPreferenceSetAttribute(void *preference, int attribute, const void *from, size_t n) {
  Preference *p = (Preference *)preference;
  if (attribute == 1 && n == 8)
    memcpy(&p->workspace, from, n);
  else if (attribute == 3 && n == 4)
    memcpy(&p->reduction, from, n);
  else if (attribute >= 5 && attribute <= 8 && n == 4)
    memcpy(&p->aligned[attribute - 5], from, n);
  else
    return kInvalidValue;
  return kSuccess;
}
API int cublasLtMatmulAlgoGetHeuristic(void *, void *desc, void *a, void *b, void *c, void *d, void *preference, int wanted, Heuristic *results, int *found) {
  std::lock_guard<std::mutex> lock(everything);
  const Preference *p = (const Preference *)preference;
  *found = 0;
  if (wanted < 1 || p == nullptr) return kInvalidValue;
  if (no_algorithms || !fits((Desc *)desc, (Layout *)a, (Layout *)b, (Layout *)c, (Layout *)d)) return kNotSupported;
  Layout *out = (Layout *)d;
  uint64_t bytes = 4 * out->rows * out->cols;  // as if the input features were split in two
  for (int n = 0; n < wanted && n < kAlgorithms; n++) {
    Heuristic &r = results[n] = Heuristic();
    r.algorithm.shape = shape_of((Desc *)desc, (Layout *)a, (Layout *)b, out);
    r.algorithm.workspace = r.workspace = bytes <= p->workspace ? bytes : 0;
    for (int i = 0; i < 4; i++) r.algorithm.aligned[i] = p->aligned[i];
    r.algorithm.of[0] = n;
    r.algorithm.of[1] = out->type == kBF16 && p->reduction & 5;
    *found = n + 1;
  }
  return kSuccess;
}
API int cublasLtMatmul(void *handle, void *desc, const void *alpha, const void *a, void *la, const void *b, void *lb, const void *beta, const void *c,
                       void *lc, void *d, void *ld, const Algorithm *algorithm, void *workspace, size_t bytes, void *stream) {
  std::lock_guard<std::mutex> lock(everything);
  const Desc *o = (const Desc *)desc;
  const Layout *x = (const Layout *)la, *y = (const Layout *)lb, *z = (const Layout *)ld;
  if (handle != &created || created == 0) return kNotInitialized;
  if (multiplied) return multiplied;
  if (!fits(o, x, y, (const Layout *)lc, z)) return kNotSupported;
  if (*(const float *)alpha != 1.0f || *(const float *)beta != 0.0f || algorithm == nullptr || algorithm->shape != shape_of(o, x, y, z)) return kInvalidValue;
  if (algorithm->of[0] < uint64_t(failing)) return kNotSupported;
  const void *at[] = {a, b, c, d};
  for (int i = 0; i < 4; i++)
    if (uint64_t(at[i]) % algorithm->aligned[i]) return kInvalidValue;
  if (capturing(stream) && !loaded.count(algorithm->shape + algorithm->of[0])) return kInternalError;  // a kernel would be loaded
  loaded.insert(algorithm->shape + algorithm->of[0]);
  if (bytes < algorithm->workspace || (bytes && uint64_t(workspace) % 256)) return kInvalidValue;
  Product p{x->type, z->type, x->cols, y->cols, x->rows, x->ld, y->ld, z->ld, uint64_t(a), uint64_t(b), uint64_t(d), o->scales[0], o->scales[1],
            o->scaled[0] == kBlk128x128, algorithm->of[1] != 0, o->epilogue == kEpilogueBias ? o->bias : 0, uint64_t(workspace), algorithm->workspace};
  Product *same = nullptr;
  for (Product &q : products)
    if (q == p) same = &q;
  if (same == nullptr) {
    products.push_back(p);
    same = &products.back();
  }
  return host(stream, multiply, same) == 0 ? kSuccess : kExecutionFailed;
}
