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
	return 0;
}
