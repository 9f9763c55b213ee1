/*
 * A log with zone append: records go to whatever place the disk gives them, which is their name.
 *
 *   cc append_log.c $(pkg-config --cflags --libs zoneplug) -o append_log
 *   ./append_log "mem,zones=8,zone-size=1M"
 *
 * Writes 1000 records, makes them durable, reads each back, and finds them again by walking over the zones, as after a
 * crash. What is on the disk is lost.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zoneplug.h>

enum { RECORDS = 1000 };
static const uint32_t MAGIC = 0x5a4c4f47;

/* The start of a record's first block. */
struct header {
	uint32_t magic;
	uint32_t len;
	uint64_t number;
};

struct log {
	struct zp_disk *disk;
	uint64_t zone_sectors;
	uint64_t nr_zones;
	uint64_t first;
	uint64_t block;
	uint64_t zone; /* takes the next record */
};

/* Ends the program with the text of the call that has failed. */
static void fail(const char *what)
{
	const char *hint = zp_error_hint();

	fprintf(stderr, "append_log: %s: %s\n", what, zp_error_message());
	if (hint)
		fprintf(stderr, "try: %s\n", hint);
	exit(1);
}

static uint64_t property(struct zp_disk *disk, const char *name)
{
	uint64_t value;

	if (zp_property(disk, name, &value))
		fail(name);
	return value;
}

/* What record `number` holds: its length depends on its number too. */
static size_t fill(char *text, size_t size, uint64_t number)
{
	size_t len = number * 37 % size;

	for (size_t i = 0; i < len; i++)
		text[i] = (char)('a' + (number + i) % 26);
	return len;
}

/* Appends a record, and returns its sector. */
static uint64_t append(struct log *log, uint64_t number, const void *data, size_t len)
{
	struct header header = { MAGIC, (uint32_t)len, number };
	size_t whole = (sizeof(header) + len + log->block - 1) / log->block * log->block;
	static const char zeroes[65536];
	struct iovec pieces[] = {
		{ &header, sizeof(header) },
		{ (void *)(uintptr_t)data, len },
		{ (void *)(uintptr_t)zeroes, whole - sizeof(header) - len },
	};

	for (; log->zone < log->nr_zones; log->zone++) {
		int64_t at = zp_appendv(log->disk, log->zone * log->zone_sectors, pieces, 3, 0);

		if (at >= 0)
			return (uint64_t)at;
		/* EIO: the record does not fit into the rest of the zone. Another error is one. */
		if (at != -EIO)
			fail("append");
	}
	fprintf(stderr, "append_log: the disk is full\ntry: a disk with more zones\n");
	exit(1);
}

/* Reads the record at `sector`. Returns its number and length; the text goes to `data`. */
static struct header read_record(struct log *log, uint64_t sector, char *data, size_t size)
{
	struct header header = { 0, 0, 0 };
	size_t whole = (sizeof(header) + size + log->block - 1) / log->block * log->block;
	char *buf = zp_buf_alloc(whole);

	if (!buf || zp_read(log->disk, sector, buf, log->block))
		fail("read");
	memcpy(&header, buf, sizeof(header));
	if (header.magic == MAGIC && header.len <= size) {
		size_t len = (sizeof(header) + header.len + log->block - 1) / log->block * log->block;

		if (zp_read(log->disk, sector, buf, len))
			fail("read");
		memcpy(data, buf + sizeof(header), header.len);
	}
	zp_buf_free(buf);
	return header;
}

int main(int argc, char **argv)
{
	const char *spec = argc > 1 ? argv[1] : "mem,zones=8,zone-size=1M";
	static uint64_t at[RECORDS];
	static char data[5000], back[5000];
	struct log log = { 0 };
	uint64_t found = 0;

	if (zp_open(spec, &log.disk))
		fail(spec);
	log.zone_sectors = property(log.disk, "zone_sectors");
	log.nr_zones = property(log.disk, "nr_zones");
	log.block = property(log.disk, "write_granularity_sectors") * 512;
	log.first = log.zone = property(log.disk, "nr_conventional_zones");
	if (zp_reset_all(log.disk))
		fail("reset");

	for (uint64_t n = 0; n < RECORDS; n++)
		at[n] = append(&log, n, data, fill(data, sizeof(data), n));
	/* What was appended before is durable from here on. */
	if (zp_flush(log.disk))
		fail("flush");

	/* Each record by its name. */
	for (uint64_t n = 0; n < RECORDS; n++) {
		struct header h = read_record(&log, at[n], back, sizeof(back));
		size_t len = fill(data, sizeof(data), n);

		if (h.number != n || h.len != len || memcmp(data, back, len)) {
			fprintf(stderr, "append_log: record %" PRIu64 " is another\n", n);
			return 1;
		}
	}

	/* All records, in order, without their names: from the start of each zone to its write pointer. */
	for (uint64_t z = log.first; z < log.nr_zones; z++) {
		struct zp_zone zone;

		if (zp_report(log.disk, z * log.zone_sectors, &zone, 1, 0) != 1)
			fail("report");
		for (uint64_t s = zone.start; zone.cond != ZP_COND_EMPTY && s < zone.wp && s < zone.start + zone.capacity;) {
			struct header h = read_record(&log, s, back, sizeof(back));

			if (h.magic != MAGIC)
				break;
			if (h.number != found++) {
				fprintf(stderr, "append_log: record %" PRIu64 " is missing\n", found - 1);
				return 1;
			}
			s += (sizeof(h) + h.len + log.block - 1) / log.block * (log.block / 512);
		}
	}
	printf("%d records appended, %" PRIu64 " found again, in %" PRIu64 " zones\n", RECORDS, found,
	       log.zone - log.first + 1);
	zp_close(log.disk);
	return found != RECORDS;
}
