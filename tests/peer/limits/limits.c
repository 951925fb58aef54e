/* limits.c: prints the maximum read bandwidth and arithmetic rates of this machine as JSON,
 * in bytes and operations per second, with one thread per processor.
 *
 *   cc -O3 -march=native -pthread limits.c -o limits && ./limits
 *   ./limits turns      measures the bandwidth once per line on standard input
 *
 * Each figure is the best of several rounds, because other processes only lower it. Rates
 * use operands in registers and the widest instructions that the compiler may use. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

enum { THREADS = 256, ROUNDS = 9, CHAINS = 12, REPEAT = 1 << 20, TURN = 8 };
static const size_t BUFFER = (size_t)1 << 30;

typedef struct job {
	void (*work)(struct job *);
	const char *from;
	size_t bytes;
	pthread_barrier_t *begin;
	double started, ended;
	volatile long sink;
} job;

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void *thread(void *p)
{
	job *j = p;
	pthread_barrier_wait(j->begin);
	j->started = now();
	j->work(j);
	j->ended = now();
	return NULL;
}

/* once returns the seconds of one round of all threads; a failed thread ends the program. */
static double once(void (*work)(job *), int threads, const char *buffer)
{
	pthread_t ids[THREADS];
	static job jobs[THREADS];
	pthread_barrier_t begin;
	pthread_barrier_init(&begin, NULL, (unsigned)threads);
	const size_t share = BUFFER / (size_t)threads & ~(size_t)4095;
	for (int i = 0; i < threads; i++) {
		jobs[i] = (job){.work = work, .from = buffer + share * (size_t)i, .bytes = share, .begin = &begin};
		if (pthread_create(&ids[i], NULL, thread, &jobs[i]) != 0) {
			perror("limits: pthread_create");
			exit(1);
		}
	}
	double first = 1e300, last = 0;
	for (int i = 0; i < threads; i++) {
		pthread_join(ids[i], NULL);
		first = jobs[i].started < first ? jobs[i].started : first;
		last = jobs[i].ended > last ? jobs[i].ended : last;
	}
	pthread_barrier_destroy(&begin);
	return last - first;
}

static void print(const char *name, void (*work)(job *), int threads, const char *buffer, double amount)
{
	double best = 1e300;
	for (int i = 0; i < ROUNDS; i++) {
		const double took = once(work, threads, buffer);
		best = took < best ? took : best;
	}
	printf("\"%s\": %.0f, ", name, amount / best);
}

static void read_all(job *j)
{
	uint64_t sum[8] = {0};
	const uint64_t *p = (const uint64_t *)(const void *)j->from;
	for (size_t i = 0; i < j->bytes / 8; i += 8)
		for (int k = 0; k < 8; k++)
			sum[k] ^= p[i + (size_t)k];
	for (int k = 1; k < 8; k++)
		sum[0] ^= sum[k];
	j->sink = (long)sum[0];
}

#if defined(__AVX512F__)
/* CHAINED defines a job that runs an instruction on CHAINS independent accumulators. */
#define CHAINED(name, instruction) \
	static void name(job *j) \
	{ \
		(void)j; \
		__asm__ volatile("vpxorq %%zmm30, %%zmm30, %%zmm30\n\tvpxorq %%zmm31, %%zmm31, %%zmm31\n\tmov %0, %%ecx\n1:\n\t" \
			instruction " %%zmm30, %%zmm31, %%zmm0\n\t" instruction " %%zmm30, %%zmm31, %%zmm1\n\t" \
			instruction " %%zmm30, %%zmm31, %%zmm2\n\t" instruction " %%zmm30, %%zmm31, %%zmm3\n\t" \
			instruction " %%zmm30, %%zmm31, %%zmm4\n\t" instruction " %%zmm30, %%zmm31, %%zmm5\n\t" \
			instruction " %%zmm30, %%zmm31, %%zmm6\n\t" instruction " %%zmm30, %%zmm31, %%zmm7\n\t" \
			instruction " %%zmm30, %%zmm31, %%zmm8\n\t" instruction " %%zmm30, %%zmm31, %%zmm9\n\t" \
			instruction " %%zmm30, %%zmm31, %%zmm10\n\t" instruction " %%zmm30, %%zmm31, %%zmm11\n\t" \
			"dec %%ecx\n\tjnz 1b" \
			: : "i"(REPEAT) : "ecx", "cc", "zmm0", "zmm1", "zmm2", "zmm3", "zmm4", "zmm5", "zmm6", "zmm7", "zmm8", \
			"zmm9", "zmm10", "zmm11", "zmm30", "zmm31"); \
	}
CHAINED(fused, "vfmadd231ps")
#if defined(__AVX512BF16__)
CHAINED(dot_bf16, "vdpbf16ps")
#endif
#if defined(__AVX512VNNI__)
CHAINED(dot_int8, "vpdpbusd")
#endif
#elif defined(__FMA__)
static void fused(job *j)
{
	__m256 acc[CHAINS], x = _mm256_set1_ps((float)j->bytes * 1e-30f);
	for (int i = 0; i < CHAINS; i++)
		acc[i] = x;
	for (int k = 0; k < REPEAT; k++)
#pragma GCC unroll 12
		for (int i = 0; i < CHAINS; i++)
			acc[i] = _mm256_fmadd_ps(acc[i], x, x);
	for (int i = 1; i < CHAINS; i++)
		acc[0] = _mm256_add_ps(acc[0], acc[i]);
	j->sink = (long)_mm256_cvtss_f32(acc[0]);
}
#endif

#if defined(__AMX_BF16__) && defined(__AMX_INT8__)
enum { TILES = REPEAT / 4 };
/* tiles configures eight tiles of 16 rows by 64 bytes. */
static void tiles(void)
{
	struct {
		uint8_t palette, start, reserved[14];
		uint16_t bytes[16];
		uint8_t rows[16];
	} c = {.palette = 1};
	for (int i = 0; i < 8; i++)
		c.bytes[i] = 64, c.rows[i] = 16;
	__asm__ volatile("" : : "r"(&c) : "memory"); /* the intrinsic reads 64 bytes, but the compiler assumes 8 */
	_tile_loadconfig(&c);
	_tile_zero(0);
	_tile_zero(1);
	_tile_zero(2);
	_tile_zero(3);
	_tile_zero(4);
	_tile_zero(5);
	_tile_zero(6);
	_tile_zero(7);
}
#define TILED(name, product) \
	static void name(job *j) \
	{ \
		(void)j; \
		tiles(); \
		for (int k = 0; k < TILES; k++) { \
			product(0, 4, 6); \
			product(1, 4, 7); \
			product(2, 5, 6); \
			product(3, 5, 7); \
		} \
		_tile_release(); \
	}
TILED(tiles_bf16, _tile_dpbf16ps)
TILED(tiles_int8, _tile_dpbssd)
/* The kernel enables tiles only on request: arch_prctl(ARCH_REQ_XCOMP_PERM, XTILEDATA). */
static int has_tiles(void) { return syscall(SYS_arch_prctl, 0x1023, 18) == 0; }
#endif

/* turns prints the bandwidth of a few rounds for each input line. */
static void turns(int threads, const char *buffer)
{
	char line[64];
	while (fgets(line, sizeof line, stdin)) {
		double took = 0;
		for (int i = 0; i < TURN; i++)
			took += once(read_all, threads, buffer);
		printf("{\"read bandwidth\": %.0f}\n", TURN * (double)BUFFER / took);
		fflush(stdout);
	}
}

int main(int argc, char **argv)
{
	cpu_set_t set;
	int threads = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
	threads = threads > THREADS ? THREADS : threads;
	char *buffer = mmap(NULL, BUFFER, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (buffer == MAP_FAILED) {
		perror("limits: no gigabyte to read");
		return 1;
	}
	madvise(buffer, BUFFER, MADV_HUGEPAGE);
	memset(buffer, 1, BUFFER);
	if (argc > 1 && strcmp(argv[1], "turns") == 0) {
		turns(threads, buffer);
		return 0;
	}
	printf("{");
	print("read bandwidth", read_all, threads, buffer, (double)BUFFER);
	const double chains = (double)threads * REPEAT * CHAINS;
	(void)chains;
#if defined(__AVX512F__)
	print("f32 rate", fused, threads, buffer, chains * 16 * 2);
#elif defined(__FMA__)
	print("f32 rate", fused, threads, buffer, chains * 8 * 2);
#endif
#if defined(__AVX512BF16__)
	print("bf16 rate", dot_bf16, threads, buffer, chains * 32 * 2);
#endif
#if defined(__AVX512VNNI__)
	print("int8 rate", dot_int8, threads, buffer, chains * 64 * 2);
#endif
#if defined(__AMX_BF16__) && defined(__AMX_INT8__)
	if (has_tiles()) {
		print("bf16 tile rate", tiles_bf16, threads, buffer, (double)threads * TILES * 4 * 16 * 16 * 32 * 2);
		print("int8 tile rate", tiles_int8, threads, buffer, (double)threads * TILES * 4 * 16 * 16 * 64 * 2);
	}
#endif
	printf("\"threads\": %d}\n", threads);
	return 0;
}
