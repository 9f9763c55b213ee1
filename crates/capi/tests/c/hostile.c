/*
 * Programs that have no memory left, cancel threads in a call, and cut memory into odd pieces.
 *
 *   hostile memory         calls that need much memory, with little left
 *   hostile cancel         a thread is cancelled while it is in a call that waits
 *   hostile pieces SPEC    vectored operations of up to 1024 pieces, many of them empty, of odd lengths
 *
 * scripts/capi runs the last one also with AddressSanitizer.
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/uio.h>
#include <unistd.h>
#include <zoneplug.h>

#define CHECK(ok) \
	do { \
		if (!(ok)) { \
			fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #ok, zp_error_message()); \
			exit(1); \
		} \
	} while (0)

static struct zp_disk *open_disk(const char *spec)
{
	struct zp_disk *disk = NULL;
	CHECK(zp_open(spec, &disk) == 0);
	return disk;
}

static struct zp_queue *open_queue(struct zp_disk *disk, unsigned depth)
{
	struct zp_queue *queue = NULL;
	CHECK(zp_queue_open(disk, depth, &queue) == 0);
	return queue;
}

static void no_memory(void)
{
	const size_t len = 1u << 30;
	struct zp_disk *disk = open_disk("null,zones=64,zone-size=1G");
	char block[4096] = {0};
	CHECK(zp_write(disk, 0, block, sizeof(block), 0) == 0);
	char *much = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	CHECK(much != MAP_FAILED);
	struct rlimit limit = {3 * (len / 2), 3 * (len / 2)};
	CHECK(setrlimit(RLIMIT_AS, &limit) == 0);
	struct iovec pieces[2] = {{much, len / 2}, {much + len / 2, len / 2}};
	CHECK(zp_read(disk, 0, much, len) == -ENOMEM);
	CHECK(strcmp(zp_error_message(), "there is not enough memory") == 0 && zp_error_hint() != NULL);
	CHECK(zp_readv(disk, 0, pieces, 2) == -ENOMEM);
	CHECK(zp_write(disk, 8, much, len, 0) == -ENOMEM);
	CHECK(zp_writev(disk, 8, pieces, 2, 0) == -ENOMEM);
	CHECK(zp_append(disk, 0, much, len, 0) == -ENOMEM);
	CHECK(zp_appendv(disk, 0, pieces, 2, 0) == -ENOMEM);
	CHECK(zp_buf_alloc(len) == NULL);
	/* The disk goes on. */
	CHECK(zp_write(disk, 8, block, sizeof(block), 0) == 0);
	zp_close(disk);
}

static struct zp_disk *slow;
static int in_queue;

static void *waits(void *ended)
{
	static char block[4096];
	if (in_queue) {
		struct zp_queue *queue = open_queue(slow, 1);
		struct zp_op op = {.buf = block, .len = sizeof(block), .op = ZP_OP_READ};
		struct zp_completion done;
		CHECK(zp_queue_fd(queue) >= 0);
		CHECK(zp_queue_submit(queue, &op, 1) == 1);
		CHECK(zp_queue_wait(queue, &done, 1, 1, -1) == 1 && done.result == 0);
		CHECK(zp_queue_close(queue, -1) == 0);
	} else {
		CHECK(zp_read(slow, 0, block, sizeof(block)) == 0);
	}
	*(int *)ended = 1;
	pthread_testcancel();
	*(int *)ended = 2;
	return NULL;
}

/* The call ends as if nothing had happened; the thread ends after it. */
static void cancelled(void)
{
	slow = open_disk("mem,zones=4,zone-size=1M,fault=read/delay=200ms/count=all");
	for (in_queue = 0; in_queue < 2; in_queue++) {
		int ended = 0;
		void *result;
		pthread_t thread;
		CHECK(pthread_create(&thread, NULL, waits, &ended) == 0);
		usleep(50000);
		CHECK(pthread_cancel(thread) == 0 && pthread_join(thread, &result) == 0);
		CHECK(result == PTHREAD_CANCELED && ended == 1);
	}
	zp_close(slow);
}

static unsigned seed = 1;

/* Cuts memory of `total` bytes into pieces, of which many are empty; the pieces do not touch each other. */
static char *cut(struct iovec *pieces, int nr, size_t total)
{
	char *memory = malloc(total + 4 * (size_t)nr + 16), *at = memory + rand_r(&seed) % 13;
	for (int i = 0; i < nr; i++) {
		size_t most = 2 * total / (size_t)(nr - i) + 1;
		size_t len = i == nr - 1 ? total : rand_r(&seed) % 4 ? rand_r(&seed) % most : 0;
		if (len > total)
			len = total;
		pieces[i].iov_base = len ? at : NULL;
		pieces[i].iov_len = len;
		for (size_t j = 0; j < len; j++)
			at[j] = (char)rand_r(&seed);
		at += len + rand_r(&seed) % 3;
		total -= len;
	}
	return memory;
}

static struct zp_completion one(struct zp_queue *queue, struct zp_op op)
{
	struct zp_completion done;
	CHECK(zp_queue_submit(queue, &op, 1) == 1);
	CHECK(zp_queue_wait(queue, &done, 1, 1, -1) == 1);
	return done;
}

/* What is written in pieces is read back in other pieces. */
static void pieces(const char *spec)
{
	static const int COUNTS[] = {1, 2, 3, 7, 1023, 1024};
	struct zp_disk *disk = open_disk(spec);
	struct zp_queue *queue = open_queue(disk, 4);
	uint64_t block, zone;
	CHECK(zp_property(disk, "logical_block_sectors", &block) == 0);
	CHECK(zp_property(disk, "zone_sectors", &zone) == 0);
	for (int round = 0; round < 60; round++) {
		int nr = COUNTS[round % 6];
		size_t len = block * 512 * (1 + rand_r(&seed) % 8);
		struct iovec *from = calloc(nr, sizeof(*from)), *to = calloc(nr, sizeof(*to));
		char *written = cut(from, nr, len), *back = cut(to, nr, len);
		struct zp_op write = {.buf = from, .len = len, .iovcnt = nr, .op = ZP_OP_ZONE_APPEND};
		struct zp_op read = {.buf = to, .len = len, .iovcnt = nr, .op = ZP_OP_READ};
		CHECK(zp_reset(disk, 0, zone) == 0);
		struct zp_completion done = one(queue, write);
		CHECK(done.result == 0);
		read.sector = done.sector;
		CHECK(one(queue, read).result == 0);
		char *a = malloc(len), *b = malloc(len), *at = a;
		for (int i = 0; i < nr; at += from[i++].iov_len)
			memcpy(at, from[i].iov_len ? from[i].iov_base : a, from[i].iov_len);
		at = b;
		for (int i = 0; i < nr; at += to[i++].iov_len)
			memcpy(at, to[i].iov_len ? to[i].iov_base : b, to[i].iov_len);
		CHECK(memcmp(a, b, len) == 0);
		free(a), free(b), free(from), free(to), free(written), free(back);
	}
	CHECK(zp_queue_close(queue, -1) == 0);
	zp_close(disk);
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";
	if (!strcmp(what, "memory"))
		no_memory();
	else if (!strcmp(what, "cancel"))
		cancelled();
	else if (!strcmp(what, "pieces") && argc > 2)
		pieces(argv[2]);
	else
		return 2;
	return 0;
}
