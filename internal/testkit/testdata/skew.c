// A wall clock that a test sets and slews, for a program that is started with this library in LD_PRELOAD. The file named by SKEW holds four
// numbers of 64 bits: a turn, odd while the others change; how far the clock is ahead (µs); by how much it goes too fast (ppm); since when,
// on the true clock (µs). Monotonic clocks stay as they are.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

struct skew { volatile int64_t turn, ahead, ppm, since; };

static const struct skew *skew;

__attribute__((constructor)) static void begin(void) {
	const char *path = getenv("SKEW");
	int fd = path ? open(path, O_RDONLY) : -1;
	if (fd < 0) return;
	void *at = mmap(NULL, sizeof *skew, PROT_READ, MAP_SHARED, fd, 0);
	if (at != MAP_FAILED) skew = at;
	close(fd);
}

static struct timespec now(void) {
	struct timespec ts;
	syscall(SYS_clock_gettime, CLOCK_REALTIME, &ts);
	if (!skew) return ts;
	int64_t us = ts.tv_sec * 1000000LL + ts.tv_nsec / 1000, turn, wrong;
	do {
		turn = skew->turn;
		__sync_synchronize();
		wrong = us + skew->ahead + (us - skew->since) * skew->ppm / 1000000;
		__sync_synchronize();
	} while (turn % 2 || turn != skew->turn);
	ts.tv_sec = wrong / 1000000;
	ts.tv_nsec = wrong % 1000000 * 1000;
	return ts;
}

int gettimeofday(struct timeval *tv, void *zone) {
	(void)zone;
	struct timespec ts = now();
	tv->tv_sec = ts.tv_sec;
	tv->tv_usec = ts.tv_nsec / 1000;
	return 0;
}

time_t time(time_t *to) {
	struct timespec ts = now();
	if (to) *to = ts.tv_sec;
	return ts.tv_sec;
}

int clock_gettime(clockid_t which, struct timespec *ts) {
	if (which != CLOCK_REALTIME) return syscall(SYS_clock_gettime, which, ts);
	*ts = now();
	return 0;
}
