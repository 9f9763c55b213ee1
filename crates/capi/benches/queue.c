/* What scripts/capi-cost counts: operations through a queue of the C library. Usage: queue CASE OPERATIONS */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zoneplug.h>

int main(int argc, char **argv)
{
	struct zp_disk *disk;
	struct zp_queue *queue;
	static struct zp_op ops[16];
	static struct zp_completion done[16];
	unsigned long total, depth, left;
	char *buf = zp_buf_alloc(4096);
	int read, random;

	if (argc != 3 || zp_open("null,zones=128,zone-size=2G", &disk) || zp_queue_open(disk, 16, &queue))
		return 2;
	total = strtoul(argv[2], NULL, 10);
	read = !strncmp(argv[1], "read", 4);
	random = !strncmp(argv[1], "random", 6);
	depth = strtoul(strrchr(argv[1], '-') + 1, NULL, 10);
	for (unsigned long n = 0; n < total; n += depth) {
		for (unsigned long i = 0; i < depth; i++) {
			/* 2 GiB are 4194304 sectors. Scattered: each operation of a batch to a zone of its own. */
			ops[i].user_data = i;
			ops[i].sector = random ? i * 4194304 + n / depth * 8 : (n + i) * 8;
			ops[i].buf = buf;
			ops[i].len = 4096;
			ops[i].op = read ? ZP_OP_READ : ZP_OP_WRITE;
		}
		if (zp_queue_submit(queue, ops, (uint32_t)depth) != (int)depth)
			return 3;
		for (left = depth; left;) {
			int got = zp_queue_poll(queue, done, 16);

			if (got < 0)
				return 4;
			for (int i = 0; i < got; i++)
				if (done[i].result)
					return 5;
			left -= (unsigned long)got;
		}
	}
	zp_queue_close(queue, -1);
	zp_close(disk);
	zp_buf_free(buf);
	return 0;
}
