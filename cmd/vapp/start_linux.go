//go:build cgo

package main

/*
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

// Memory that Go's runtime and the C library reserve before main, on x86-64 with two to four
// threads: 1.6 GiB of address space, and 120 MiB of data.
#define ADDRESS_SPACE 2048
#define DATA 192

static void check(int resource, const char *name, const char *option, rlim_t least)
{
	struct rlimit l;
	if (getrlimit(resource, &l) != 0 || l.rlim_cur == RLIM_INFINITY || l.rlim_cur >= least << 20)
		return;
	fprintf(stderr, "vapp: memory: this process is limited to %llu MiB of %s (%s %llu), and vapp needs at least %llu MiB to start,"
		" and more to serve: raise the limit or set it to unlimited\n", (unsigned long long)(l.rlim_cur >> 20), name, option,
		(unsigned long long)(l.rlim_cur >> 10), (unsigned long long)least);
	_exit(1);
}

// Go's runtime ends with a stack trace where it cannot reserve memory, so this runs before it
// starts.
__attribute__((constructor)) static void check_limits(void)
{
	check(RLIMIT_AS, "address space", "ulimit -v", ADDRESS_SPACE);
	check(RLIMIT_DATA, "data", "ulimit -d", DATA);
}
*/
import "C"
