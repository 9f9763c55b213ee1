/*
 * An event loop with poll(2): lines of standard input go to a zone, and the loop never waits for the disk alone.
 *
 *   cc event_loop.c $(pkg-config --cflags --libs zoneplug) -o event_loop
 *   seq 100 | ./event_loop "mem,zones=8,zone-size=1M"
 *
 * The loop waits for three descriptors: the input, the queue's completions, and the disk's events. It prints where each line
 * has landed. While all blocks are in flight it does not read further. Zone 0 of the disk is reset first.
 */
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zoneplug.h>

enum { DEPTH = 8, BLOCK = 4096 };

struct loop {
	struct zp_disk *disk;
	struct zp_queue *queue;
	char *blocks;
	int free[DEPTH], nr_free; /* blocks that the disk does not have */
	char line[BLOCK];
	size_t filled;
	uint64_t seen; /* the number of the last event */
	int failed;
};

static void fail(const char *what)
{
	fprintf(stderr, "event_loop: %s: %s\n", what, zp_error_message());
	exit(1);
}

/* Sends a line in a block of its own. */
static void submit(struct loop *l, size_t len)
{
	int n = l->free[--l->nr_free];
	struct zp_op op = { .op = ZP_OP_ZONE_APPEND, .buf = l->blocks + n * BLOCK, .len = BLOCK, .user_data = (uint64_t)n };

	memset(op.buf, 0, BLOCK);
	memcpy(op.buf, l->line, len);
	if (zp_queue_submit(l->queue, &op, 1) != 1)
		fail("submit");
}

/* Sends the lines that are there, as long as there are blocks for them. */
static void take_lines(struct loop *l)
{
	char *end;

	while (l->nr_free > 0 && (end = memchr(l->line, '\n', l->filled))) {
		size_t len = (size_t)(end - l->line);

		submit(l, len);
		l->filled -= len + 1;
		memmove(l->line, end + 1, l->filled);
	}
}

/* Fetches completions until there are none, as the descriptor wants it. */
static void take_completions(struct loop *l)
{
	struct zp_completion done[DEPTH];
	int n;

	while ((n = zp_queue_poll(l->queue, done, DEPTH)) > 0) {
		for (int i = 0; i < n; i++) {
			int block = (int)done[i].user_data;

			if (done[i].result == 0)
				printf("%s: sector %" PRIu64 "\n", l->blocks + block * BLOCK, done[i].sector);
			else
				printf("%s: %s\n", l->blocks + block * BLOCK, zp_status_name(done[i].status));
			l->failed |= done[i].result != 0;
			l->free[l->nr_free++] = block;
		}
	}
	if (n < 0)
		fail("poll");
}

static void take_events(struct loop *l)
{
	struct zp_event events[16];
	int n = zp_events(l->disk, l->seen, events, 16);

	for (int i = 0; i < n; i++) {
		printf("event %" PRIu64 ": kind %d, zone %" PRIu32 ", %s\n", events[i].sequence, events[i].kind, events[i].zone,
		       zp_status_name(events[i].status));
		l->seen = events[i].sequence;
	}
}

int main(int argc, char **argv)
{
	static struct loop l;
	uint64_t zone_sectors;
	int open = 1;

	if (argc != 2) {
		fprintf(stderr, "usage: event_loop SPEC\n");
		return 2;
	}
	l.blocks = zp_buf_alloc(DEPTH * BLOCK);
	while (l.blocks && l.nr_free < DEPTH) {
		l.free[l.nr_free] = l.nr_free;
		l.nr_free++;
	}
	if (!l.blocks || zp_open(argv[1], &l.disk) || zp_queue_open(l.disk, DEPTH, &l.queue) ||
	    zp_property(l.disk, "zone_sectors", &zone_sectors) || zp_reset(l.disk, 0, zone_sectors))
		fail(argv[1]);

	struct pollfd fds[] = {
		{ .fd = STDIN_FILENO },
		{ .fd = zp_queue_fd(l.queue), .events = POLLIN },
		{ .fd = zp_events_fd(l.disk), .events = POLLIN },
	};
	while (open || zp_queue_in_flight(l.queue) > 0) {
		/* Input waits in its pipe while there is no room for it. A descriptor of -1 is not polled. */
		int room = open && l.nr_free > 0 && l.filled < BLOCK;

		fds[0] = (struct pollfd){ .fd = room ? STDIN_FILENO : -1, .events = POLLIN };
		if (poll(fds, 3, -1) < 0)
			break;
		if (fds[0].revents) {
			ssize_t n = read(STDIN_FILENO, l.line + l.filled, BLOCK - l.filled);

			open = n > 0;
			l.filled += n > 0 ? (size_t)n : 0;
			/* A line that is too long for a block, or the last one without an end. */
			if ((l.filled == BLOCK || (!open && l.filled)) && !memchr(l.line, '\n', l.filled))
				l.line[l.filled == BLOCK ? BLOCK - 1 : l.filled++] = '\n';
		}
		if (fds[1].revents)
			take_completions(&l);
		if (fds[2].revents)
			take_events(&l);
		take_lines(&l);
	}
	if (zp_queue_close(l.queue, 10000))
		fail("close");
	zp_close(l.disk);
	zp_buf_free(l.blocks);
	return l.failed;
}
