/* Prints what a program that was compiled with the header relies on: sizes, offsets and numbers of structures. */
#include <stdio.h>
#include <zoneplug.h>

#define SIZE(type) printf("sizeof(struct %s) = %zu\n", #type, sizeof(struct type))
#define FIELD(type, field) printf("offsetof(struct %s, %s) = %zu\n", #type, #field, offsetof(struct type, field))

int main(void)
{
	SIZE(zp_zone);
	FIELD(zp_zone, start);
	FIELD(zp_zone, len);
	FIELD(zp_zone, wp);
	FIELD(zp_zone, zone_type);
	FIELD(zp_zone, cond);
	FIELD(zp_zone, reserved);
	FIELD(zp_zone, capacity);
	FIELD(zp_zone, reserved2);
	SIZE(zp_op);
	FIELD(zp_op, user_data);
	FIELD(zp_op, sector);
	FIELD(zp_op, buf);
	FIELD(zp_op, len);
	FIELD(zp_op, nr_sectors);
	FIELD(zp_op, iovcnt);
	FIELD(zp_op, op);
	FIELD(zp_op, reserved);
	FIELD(zp_op, flags);
	SIZE(zp_completion);
	FIELD(zp_completion, user_data);
	FIELD(zp_completion, sector);
	FIELD(zp_completion, result);
	FIELD(zp_completion, nr_zones);
	FIELD(zp_completion, status);
	FIELD(zp_completion, flags);
	FIELD(zp_completion, reserved);
	SIZE(zp_event);
	FIELD(zp_event, sequence);
	FIELD(zp_event, sector);
	FIELD(zp_event, zone);
	FIELD(zp_event, count);
	FIELD(zp_event, aborted);
	FIELD(zp_event, kind);
	FIELD(zp_event, op);
	FIELD(zp_event, status);
	FIELD(zp_event, reserved);
	FIELD(zp_event, reserved2);
	SIZE(zp_create_options);
	FIELD(zp_create_options, struct_size);
	FIELD(zp_create_options, size);
	FIELD(zp_create_options, zones);
	FIELD(zp_create_options, zone_size);
	FIELD(zp_create_options, zone_capacity);
	FIELD(zp_create_options, last_zone_size);
	FIELD(zp_create_options, last_zone_capacity);
	FIELD(zp_create_options, lba_size);
	FIELD(zp_create_options, granularity);
	FIELD(zp_create_options, zone_append_max);
	FIELD(zp_create_options, conv);
	FIELD(zp_create_options, max_open);
	FIELD(zp_create_options, max_active);
	FIELD(zp_create_options, flags);
	FIELD(zp_create_options, label);
	SIZE(zp_identity);
	FIELD(zp_identity, uuid);
	FIELD(zp_identity, label);
	FIELD(zp_identity, created_unix_s);
	FIELD(zp_identity, opened_for_writing);
	FIELD(zp_identity, format_version);
	FIELD(zp_identity, reserved);
	SIZE(zp_check_report);
	FIELD(zp_check_report, problems);
	FIELD(zp_check_report, repaired);
	FIELD(zp_check_report, zones);
	FIELD(zp_check_report, reserved);
	SIZE(zp_snapshot_report);
	FIELD(zp_snapshot_report, identity);
	FIELD(zp_snapshot_report, copied);
	FIELD(zp_snapshot_report, shared);
	FIELD(zp_snapshot_report, reserved);
	return 0;
}
