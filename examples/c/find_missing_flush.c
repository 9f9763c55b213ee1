/*
 * Power cuts of a small store find a flush that was forgotten.
 *
 *   cc find_missing_flush.c $(pkg-config --cflags --libs zoneplug) -o find_missing_flush
 *   ./find_missing_flush
 *
 * The store writes a value to the end of a zone, and promises that it is durable: flush first, then promise. The program tests it
 * with this rule, and then with a store that forgets the flush of every third value.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zoneplug.h>

enum { BLOCK = 4096 };

/* Values are in the blocks of zone 0, one after the other. */
static int put(struct zp_disk *disk, const char *value, int flush)
{
	char block[BLOCK] = { 0 };

	strcpy(block, value);
	if (zp_append(disk, 0, block, BLOCK, 0) < 0)
		return -1;
	return flush ? zp_flush(disk) : 0;
}

static int has(struct zp_disk *disk, const char *value)
{
	struct zp_zone zone;
	char block[BLOCK];

	if (zp_report(disk, 0, &zone, 1, 0) != 1)
		return 0;
	for (uint64_t at = zone.start; at < zone.wp; at += BLOCK / 512)
		if (zp_read(disk, at, block, BLOCK) == 0 && strcmp(block, value) == 0)
			return 1;
	return 0;
}

/* The work that the test runs before each power cut. */
static int work(struct zp_work *work, void *arg)
{
	const int *forget = arg;
	char value[16];

	for (int n = 0; n < 10; n++) {
		snprintf(value, sizeof(value), "value %d", n);
		if (put(zp_work_disk(work), value, !(*forget && n % 3 == 2)) < 0)
			return -1;
		zp_work_promise(work, value, strlen(value) + 1);
	}
	return 0;
}

/* Checks the promise after each power cut. */
static int check(struct zp_cut *cut, void *arg)
{
	const char *value;
	char why[64];

	(void)arg;
	for (size_t n = 0; (value = zp_cut_promise(cut, n, NULL)); n++) {
		if (!has(zp_cut_disk(cut), value)) {
			snprintf(why, sizeof(why), "%s was promised, and is gone", value);
			return zp_cut_broken(cut, why);
		}
	}
	return 0;
}

int main(void)
{
	const char *disk = "mem,zones=2,zone-size=64K";
	struct zp_crash_failure *failure = NULL;
	struct zp_crash_report report;
	int forget = 0;

	if (zp_crash_test(disk, NULL, work, check, &forget, &report, NULL) != 0) {
		fprintf(stderr, "find_missing_flush: %s\n", zp_error_message());
		return 1;
	}
	printf("%d power cuts at %d points of %d runs: passed\n", (int)report.cuts, (int)report.points, (int)report.runs);
	forget = 1;
	if (zp_crash_test(disk, NULL, work, check, &forget, NULL, &failure) != 1) {
		fprintf(stderr, "find_missing_flush: the missing flush was not found\n");
		return 1;
	}
	printf("\nWith a flush that is forgotten at times:\n\n%s\n", failure->text);
	zp_crash_failure_free(failure);
	return 0;
}
