/*
 * A record server: one thread, one queue of the disk, and any number of clients on a Unix socket, all in one epoll.
 *
 *   cc epoll_server.c $(pkg-config --cflags --libs zoneplug) -o epoll_server
 *   ./epoll_server "mem,zones=64,zone-size=4M" /tmp/records
 *
 * A client sends blocks of 4096 bytes. The server appends each to a zone, and answers with the block's sector, 8 bytes in
 * the machine's order, once it is on the disk; all ones if it failed. Clients are served at a time, each in its own order.
 * SIGTERM and SIGINT end the server when what is in flight is done.
 */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <zoneplug.h>

enum { BLOCK = 4096, DEPTH = 256 };

/* A connection: reads a block, waits for the disk, sends the answer, and so on. Its place is free if it has neither. */
struct client {
	int fd; /* -1: it has gone */
	int in_flight;
	size_t filled;
	char *block;
};

struct server {
	struct zp_disk *disk;
	struct zp_queue *queue;
	int epoll;
	uint64_t zone_sectors, nr_zones, zone;
	uint64_t records;
	struct client clients[DEPTH];
};

/* What epoll tells apart from clients. */
static struct client listener, disk, signals;

static void fail(const char *what, const char *why)
{
	fprintf(stderr, "epoll_server: %s: %s\n", what, why);
	exit(1);
}

static void watch(struct server *s, int fd, struct client *c)
{
	struct epoll_event e = { .events = EPOLLIN, .data = { .ptr = c } };

	c->fd = fd;
	if (fd < 0 || epoll_ctl(s->epoll, EPOLL_CTL_ADD, fd, &e))
		fail("epoll", strerror(errno));
}

static void drop(struct client *c)
{
	close(c->fd);
	c->fd = -1;
}

/* Sends a whole block to the disk. */
static void submit(struct server *s, struct client *c)
{
	struct zp_op op = {
		.user_data = (uint64_t)(uintptr_t)c,
		.sector = s->zone * s->zone_sectors,
		.buf = c->block,
		.len = BLOCK,
		.op = ZP_OP_ZONE_APPEND,
	};

	c->in_flight = 1;
	/* There is room: no more clients are accepted than operations fit. */
	if (zp_queue_submit(s->queue, &op, 1) != 1)
		fail("submit", zp_error_message());
}

static void answer(struct client *c, uint64_t sector)
{
	c->filled = 0;
	/* Eight bytes fit into the socket's buffer, unless the client reads none of its answers. */
	if (c->fd >= 0 && send(c->fd, &sector, sizeof(sector), MSG_NOSIGNAL) != sizeof(sector))
		drop(c);
}

static void accept_one(struct server *s)
{
	int fd = accept4(listener.fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

	for (int i = 0; fd >= 0 && i < DEPTH; i++) {
		if (s->clients[i].fd < 0 && !s->clients[i].in_flight) {
			s->clients[i].filled = 0;
			watch(s, fd, &s->clients[i]);
			return;
		}
	}
	if (fd >= 0)
		close(fd);
}

static void readable(struct server *s, struct client *c)
{
	ssize_t n = read(c->fd, c->block + c->filled, BLOCK - c->filled);

	if (n > 0)
		c->filled += (size_t)n;
	else if (n == 0 || errno != EAGAIN)
		drop(c);
	if (c->filled == BLOCK)
		submit(s, c);
}

static void completed(struct server *s, const struct zp_completion *done)
{
	struct client *c = (struct client *)(uintptr_t)done->user_data;
	uint64_t zone = done->sector / s->zone_sectors;

	/* Disks with `timeout=` may keep the memory of what has failed; a second completion gives it back. */
	if (done->flags & ZP_COMPLETION_MEMORY_LENT)
		return;
	c->in_flight = 0;
	if (done->flags & ZP_COMPLETION_MEMORY_BACK) {
		answer(c, UINT64_MAX);
	} else if (done->result == 0) {
		s->records++;
		answer(c, done->sector);
	} else if (done->status == ZP_STATUS_PAST_CAPACITY || done->status == ZP_STATUS_ZONE_FULL) {
		/* The zone is full. Others that were sent to it find the next one chosen already. */
		if (zone == s->zone)
			s->zone++;
		if (s->zone < s->nr_zones)
			submit(s, c);
		else
			answer(c, UINT64_MAX);
	} else {
		answer(c, UINT64_MAX);
	}
}

/* Fetches completions until there are none, as the descriptor wants it. */
static void poll_disk(struct server *s)
{
	struct zp_completion done[32];
	int n;

	while ((n = zp_queue_poll(s->queue, done, 32)) > 0)
		for (int i = 0; i < n; i++)
			completed(s, &done[i]);
	if (n < 0)
		fail("poll", zp_error_message());
}

int main(int argc, char **argv)
{
	struct sockaddr_un name = { .sun_family = AF_UNIX };
	static struct server s;
	sigset_t set;
	int stop = 0;
	char *blocks = zp_buf_alloc((size_t)DEPTH * BLOCK);

	for (int i = 0; blocks && i < DEPTH; i++)
		s.clients[i] = (struct client){ .fd = -1, .block = blocks + (size_t)i * BLOCK };
	if (!blocks || argc != 3 || strlen(argv[2]) >= sizeof(name.sun_path)) {
		fprintf(stderr, "usage: epoll_server SPEC SOCKET\n");
		return 2;
	}
	/* Before any thread exists, so that all of them leave these signals alone. */
	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigprocmask(SIG_BLOCK, &set, NULL);

	if (zp_open(argv[1], &s.disk) || zp_queue_open(s.disk, DEPTH, &s.queue))
		fail(argv[1], zp_error_message());
	zp_property(s.disk, "zone_sectors", &s.zone_sectors);
	zp_property(s.disk, "nr_zones", &s.nr_zones);
	zp_property(s.disk, "nr_conventional_zones", &s.zone);
	if (zp_reset_all(s.disk))
		fail("reset", zp_error_message());

	s.epoll = epoll_create1(EPOLL_CLOEXEC);
	watch(&s, signalfd(-1, &set, SFD_CLOEXEC), &signals);
	watch(&s, zp_queue_fd(s.queue), &disk);
	watch(&s, socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), &listener);
	strcpy(name.sun_path, argv[2]);
	unlink(argv[2]);
	if (bind(listener.fd, (struct sockaddr *)&name, sizeof(name)) || listen(listener.fd, 64))
		fail(argv[2], strerror(errno));
	printf("serving %s\n", argv[2]);
	fflush(stdout);

	while (!stop) {
		struct epoll_event events[32];
		int n = epoll_wait(s.epoll, events, 32, -1);

		for (int i = 0; i < n; i++) {
			struct client *c = events[i].data.ptr;

			if (c == &signals)
				stop = 1;
			else if (c == &disk)
				poll_disk(&s);
			else if (c == &listener)
				accept_one(&s);
			else if (c->fd >= 0 && !c->in_flight)
				readable(&s, c);
		}
	}
	/* Waits for what is in flight. The clients' memory is the program's again afterwards. */
	if (zp_queue_close(s.queue, 10000) || zp_flush(s.disk))
		fail("close", zp_error_message());
	zp_close(s.disk);
	zp_buf_free(blocks);
	unlink(argv[2]);
	printf("%" PRIu64 " records\n", s.records);
	return 0;
}
