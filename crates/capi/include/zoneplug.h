/*
 * libzoneplug: zoned disks for programs in C.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Generated from crates/capi/src by cbindgen: do not edit.
 *
 * Addresses on a disk are sectors of 512 bytes, whatever the disk's block is. Lengths of memory are bytes. Data are read
 * and written in whole logical blocks.
 *
 * A call that returns int or int64_t returns a negative errno if it fails; zp_error_message() and zp_error_hint() then
 * say why, for the calling thread. Nothing is thrown, and no call exits the process.
 *
 * Any number of threads may use a disk at a time; a queue belongs to the thread that opened it. A child of a fork can use
 * neither: calls fail with -EPERM, and it opens disks of its own. No call is for signal handlers. pthread_cancel takes
 * effect after a call that waits, opens or closes, and must not hit another.
 */

#ifndef ZONEPLUG_H
#define ZONEPLUG_H

#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

/*
 Reads into `buf`. What is past the write pointer reads as zeroes.
 */
#define ZP_OP_READ 0

/*
 Writes `buf` at `sector`, which is the write pointer of a sequential zone once the writes before it are done.
 */
#define ZP_OP_WRITE 1

/*
 Makes durable what was acknowledged. Has no data and no sector.
 */
#define ZP_OP_FLUSH 2

/*
 Forgets the data of `nr_sectors` of conventional zones.
 */
#define ZP_OP_DISCARD 3

/*
 Writes `nr_sectors` of zeroes at `sector`, in order like a write.
 */
#define ZP_OP_WRITE_ZEROES 4

/*
 Opens the zones of a range, which count against the limit of open zones until they are closed or full.
 */
#define ZP_OP_ZONE_OPEN 5

/*
 Closes the open zones of a range.
 */
#define ZP_OP_ZONE_CLOSE 6

/*
 Makes the zones of a range full.
 */
#define ZP_OP_ZONE_FINISH 7

/*
 Writes `buf` at the write pointer of the zone that starts at `sector`. The completion says where.
 */
#define ZP_OP_ZONE_APPEND 8

/*
 Empties the zones of a range.
 */
#define ZP_OP_ZONE_RESET 9

/*
 Empties every sequential zone. Has no sector.
 */
#define ZP_OP_ZONE_RESET_ALL 10

/*
 Describes the zones from the one that holds `sector` on, in `buf`: an array of `struct zp_zone`.
 */
#define ZP_OP_REPORT_ZONES 11

/*
 The data are durable when the operation completes (force unit access).
 */
#define ZP_FUA 1

/*
 What was acknowledged before is made durable first.
 */
#define ZP_PREFLUSH 2

/*
 Fails with `ZP_STATUS_WOULD_BLOCK` rather than wait.
 */
#define ZP_NOWAIT 4

/*
 Is not merged with others into one command.
 */
#define ZP_NOMERGE 8

/*
 Of a report: also corrects what the layer knows of idle zones, after something else has changed them.
 */
#define ZP_RESYNC 16

/*
 With a scheduler: before the others. Writes to one zone stay in order.
 */
#define ZP_RT 32

/*
 With a scheduler: when the others have nothing to send.
 */
#define ZP_IDLE 64

/*
 Success.
 */
#define ZP_STATUS_OK 0

/*
 The write does not start at the zone's write pointer.
 */
#define ZP_STATUS_NOT_AT_WRITE_POINTER 1

/*
 The write or append does not fit below the zone's capacity.
 */
#define ZP_STATUS_PAST_CAPACITY 2

/*
 The zone is full.
 */
#define ZP_STATUS_ZONE_FULL 3

/*
 The zone is read-only.
 */
#define ZP_STATUS_ZONE_READ_ONLY 4

/*
 The zone is offline.
 */
#define ZP_STATUS_ZONE_OFFLINE 5

/*
 An earlier error left the write pointer unknown: report, reset or finish the zone first.
 */
#define ZP_STATUS_STALE_WRITE_POINTER 6

/*
 The range is empty, or not within the disk.
 */
#define ZP_STATUS_OUT_OF_RANGE 7

/*
 The address or length is not a multiple of the block size, or of the write granularity.
 */
#define ZP_STATUS_UNALIGNED 8

/*
 The buffer is shorter or longer than the BIO says.
 */
#define ZP_STATUS_BAD_BUFFER 9

/*
 The operation does not apply to a conventional zone.
 */
#define ZP_STATUS_CONVENTIONAL_ZONE 10

/*
 The sector of an append or a management command is not the start of a zone.
 */
#define ZP_STATUS_NOT_ZONE_START 11

/*
 The append is longer than `zone_append_max_bytes`.
 */
#define ZP_STATUS_APPEND_TOO_LARGE 12

/*
 The zone is busy: strict management found writes of it, a write came during strict management, or a resync found writes in flight.
 */
#define ZP_STATUS_ZONE_BUSY 13

/*
 A BIO with `ZP_NOWAIT` would have had to wait.
 */
#define ZP_STATUS_WOULD_BLOCK 14

/*
 The disk was opened for reading only.
 */
#define ZP_STATUS_READ_ONLY_DISK 15

/*
 The operation is not supported.
 */
#define ZP_STATUS_NOT_SUPPORTED 16

/*
 An earlier write of the zone failed, so this one was not sent.
 */
#define ZP_STATUS_ABORTED_BEHIND 17

/*
 The zone was reset or finished while this write waited, so it was not sent.
 */
#define ZP_STATUS_ABORTED_BY_MANAGEMENT 18

/*
 The queue or the disk was closed before this BIO was sent.
 */
#define ZP_STATUS_ABORTED 19

/*
 Too many open zones.
 */
#define ZP_STATUS_OPEN_LIMIT 20

/*
 Too many active zones.
 */
#define ZP_STATUS_ACTIVE_LIMIT 21

/*
 The command crosses the end of a zone.
 */
#define ZP_STATUS_BOUNDARY 22

/*
 The device refused a field of the command.
 */
#define ZP_STATUS_INVALID_FIELD 23

/*
 The zone's condition does not allow the operation.
 */
#define ZP_STATUS_INVALID_TRANSITION 24

/*
 The device refused the write because it does not start at the zone's write pointer.
 */
#define ZP_STATUS_UNALIGNED_WRITE 25

/*
 The device cannot take the command now; the same command may be tried again.
 */
#define ZP_STATUS_BUSY 26

/*
 An error of the device or the transport.
 */
#define ZP_STATUS_IO 27

/*
 The medium failed.
 */
#define ZP_STATUS_MEDIUM 28

/*
 Only a part of the data moved.
 */
#define ZP_STATUS_SHORT_TRANSFER 29

/*
 The device has run out of space to store data.
 */
#define ZP_STATUS_NO_SPACE 30

/*
 The command did not complete in time; its outcome is unknown.
 */
#define ZP_STATUS_TIMEOUT 31

/*
 The device is gone, or its queue has panicked.
 */
#define ZP_STATUS_NO_DEVICE 32

/*
 Conventional: has no write pointer.
 */
#define ZP_COND_NOT_WP 0

/*
 Empty.
 */
#define ZP_COND_EMPTY 1

/*
 Open, by a write.
 */
#define ZP_COND_IMP_OPEN 2

/*
 Open, by an open.
 */
#define ZP_COND_EXP_OPEN 3

/*
 Partly written, and not open.
 */
#define ZP_COND_CLOSED 4

/*
 Cannot be written.
 */
#define ZP_COND_READ_ONLY 13

/*
 Full.
 */
#define ZP_COND_FULL 14

/*
 Can be neither read nor written.
 */
#define ZP_COND_OFFLINE 15

/*
 Open or closed: the layer's own answer without asking the device.
 */
#define ZP_COND_ACTIVE 255

/*
 Written anywhere, in any order.
 */
#define ZP_ZONE_CONVENTIONAL 1

/*
 Written at the write pointer only.
 */
#define ZP_ZONE_SEQ_WRITE_REQUIRED 2

/*
 The memory of this operation, which failed, is still with the device. A second completion with the same `user_data`
 follows when it is back (`ZP_COMPLETION_MEMORY_BACK`); until then it must be neither used nor freed. This happens only
 to disks with `timeout=`, and if a device fails to give back what it was lent.
 */
#define ZP_COMPLETION_MEMORY_LENT 1

/*
 This is the second completion: the memory is its owner's again.
 */
#define ZP_COMPLETION_MEMORY_BACK 2

/*
 A flag of `zp_create`: finds space for all data now, and keeps it when a zone is reset. No write fails for want of space.
 */
#define ZP_CREATE_PREALLOCATE 1

/*
 A flag of `zp_create`: replaces a file that exists, unless a process has it open as a disk.
 */
#define ZP_CREATE_FORCE 2

/*
 A flag of `zp_check`: repairs what can be repaired.
 */
#define ZP_CHECK_REPAIR 1

/*
 A flag of `zp_snapshot`: the copy has the UUID of the disk, for a copy that replaces the disk.
 */
#define ZP_SNAPSHOT_KEEP_UUID 1

/*
 A command failed at the device, with `status`: an error of the medium, a limit of open zones, a command that did not
 end in time, a device that is gone. The library may still make up for it, where it sends writes again.
 */
#define ZP_EVENT_FAILED 1

/*
 The write pointer of the zone is unknown. Its writes are refused until a report, a reset or a finish.
 */
#define ZP_EVENT_STALE 2

/*
 The write pointer of a zone is known again, after a failure.
 */
#define ZP_EVENT_RECOVERED 3

/*
 The device reports less data in the zone than it has acknowledged. The zone is stale.
 */
#define ZP_EVENT_DATA_MISSING 4

/*
 A command that was given up has come back. Its memory is free again.
 */
#define ZP_EVENT_LATE_BACK 5

/*
 A queue of the device has panicked, and is not used any more.
 */
#define ZP_EVENT_QUEUE_DIED 6

/*
 The layout and the zones were read from the device again.
 */
#define ZP_EVENT_REVALIDATED 7

/*
 `zone` of an event that is not of one zone.
 */
#define ZP_NO_ZONE 4294967295

/*
 `op` of an event that is not of a command.
 */
#define ZP_NO_OP 255

/*
 A flag of `zp_log_open`: begins a log, whatever its zones hold. They are reset.
 */
#define ZP_LOG_CREATE 1

/*
 A flag of an append to a log: the records, and all before them, are durable when the call returns.
 */
#define ZP_LOG_SYNC 1

/*
 The number of a record that does not exist.
 */
#define ZP_NO_RECORD UINT64_MAX

/*
 A flag of `zp_crash_test`: cuts at every moment of every run, each in four ways, instead of `cuts` times.
 */
#define ZP_CRASH_EVERY 1

/*
 A flag of `zp_crash_test`: cuts the power once more while the check works. For checks that remove nothing that was promised.
 */
#define ZP_CRASH_CUT_CHECK 2

/*
 A flag of `zp_serve`: any host may connect, also over an address that other machines reach.
 */
#define ZP_SERVE_ANY_HOST 1

/*
 A flag of `zp_serve`: any initiator may log in over iSCSI, also at an address that other machines reach.
 */
#define ZP_SERVE_ANY_INITIATOR 2

/*
 A flag of `zp_serve`: over iSCSI, show only the conventional zones at the beginning of each disk, as a plain disk without zones.
 */
#define ZP_SERVE_CONVENTIONAL_ONLY 4

/*
 A power cut of `zp_crash_test`: what it has left, and what was promised before.
 */
struct zp_cut;

/*
 A disk. Any number of threads may use it at a time.
 */
struct zp_disk;

/*
 A log. Any number of threads may use it at a time. It keeps the disk open, also after `zp_close`.
 */
struct zp_log;

/*
 A place between two records of a log. One thread at a time may use it.
 */
struct zp_log_cursor;

/*
 A queue of operations. It belongs to the thread that opened it.
 */
struct zp_queue;

/*
 Served disks. Any number of threads may use this at a time.
 */
struct zp_serving;

/*
 A run of the work of `zp_crash_test`.
 */
struct zp_work;

/*
 Options of a new disk. Set all bytes to zero, then `struct_size`; 0 is the default of each field. Sizes are bytes.
 */
struct zp_create_options {
  /*
   `sizeof(struct zp_create_options)`.
   */
  size_t struct_size;
  /*
   Bytes of the whole disk; the remainder after whole zones becomes a shorter last zone. 0: `zones` has the number of zones.
   */
  uint64_t size;
  /*
   Number of zones.
   */
  uint64_t zones;
  /*
   Bytes of a zone. Default: 256 MiB.
   */
  uint64_t zone_size;
  /*
   Bytes of a zone that can be written. Default: all.
   */
  uint64_t zone_capacity;
  /*
   Bytes of the last zone (with `zones`).
   */
  uint64_t last_zone_size;
  /*
   Bytes of the last zone that can be written.
   */
  uint64_t last_zone_capacity;
  /*
   Bytes of a logical block. Default: 4096.
   */
  uint64_t lba_size;
  /*
   Writes to sequential zones are multiples of so many bytes. Default: a logical block.
   */
  uint64_t granularity;
  /*
   The longest append of the device itself. Default: it has none, and the layer emulates appends.
   */
  uint64_t zone_append_max;
  /*
   Conventional zones, at the start of the disk.
   */
  uint32_t conv;
  /*
   Most open zones. Default: no limit.
   */
  uint32_t max_open;
  /*
   Most active zones. Default: no limit.
   */
  uint32_t max_active;
  /*
   `ZP_CREATE_*`.
   */
  uint32_t flags;
  /*
   A name, up to 63 bytes of UTF-8. NULL: none.
   */
  const char *label;
};

/*
 The identity of a disk in a file.
 */
struct zp_identity {
  /*
   The UUID of the disk, as text.
   */
  char uuid[40];
  /*
   The label of the disk. May be empty.
   */
  char label[64];
  /*
   When it was made, in seconds since 1970.
   */
  uint64_t created_unix_s;
  /*
   How often it was opened for writing.
   */
  uint64_t opened_for_writing;
  /*
   Version of the format of the file.
   */
  uint32_t format_version;
  /*
   Zero.
   */
  uint32_t reserved;
};

/*
 The counts of a check.
 */
struct zp_check_report {
  /*
   Problems found.
   */
  uint32_t problems;
  /*
   Problems repaired.
   */
  uint32_t repaired;
  /*
   Zones that were checked.
   */
  uint32_t zones;
  /*
   Zero.
   */
  uint32_t reserved;
};

/*
 A program's function that takes each line of a text. NULL: the program wants none. The line is gone when the function returns. The
 function calls neither `longjmp` nor `pthread_exit`, and throws nothing.
 */
typedef void (*zp_line)(const char *line, void *arg);

/*
 A snapshot that was made.
 */
struct zp_snapshot_report {
  /*
   The identity of the copy.
   */
  struct zp_identity identity;
  /*
   Bytes of data that were copied.
   */
  uint64_t copied;
  /*
   1: the copy shares blocks with the disk, which the file system copies when either changes.
   */
  uint32_t shared;
  /*
   Zero.
   */
  uint32_t reserved;
};

/*
 Something that happened to a disk.
 */
struct zp_event {
  /*
   Counts up from 1 without gaps.
   */
  uint64_t sequence;
  /*
   Where the command began; else the start of the zone.
   */
  uint64_t sector;
  /*
   The number of the zone, or `ZP_NO_ZONE`.
   */
  uint32_t zone;
  /*
   How many events of this kind, zone, operation and status came one after the other before they were read. `sector`
   is that of the first.
   */
  uint32_t count;
  /*
   Operations that waited behind the failed writes and were aborted.
   */
  uint32_t aborted;
  /*
   `ZP_EVENT_*`. Later versions may have more.
   */
  uint8_t kind;
  /*
   `ZP_OP_*`, or `ZP_NO_OP`.
   */
  uint8_t op;
  /*
   `ZP_STATUS_*`.
   */
  uint8_t status;
  /*
   Zero.
   */
  uint8_t reserved;
  /*
   Zero.
   */
  uint64_t reserved2[4];
};

/*
 A zone of a report, laid out as Linux's `struct blk_zone`. All numbers are in sectors of 512 bytes.
 */
struct zp_zone {
  /*
   First sector.
   */
  uint64_t start;
  /*
   Distance to the next zone.
   */
  uint64_t len;
  /*
   The next sector to write; `start + len` if the zone is full; all ones if it has no write pointer.
   */
  uint64_t wp;
  /*
   `ZP_ZONE_*`.
   */
  uint8_t zone_type;
  /*
   `ZP_COND_*`.
   */
  uint8_t cond;
  /*
   Zero.
   */
  uint8_t reserved[6];
  /*
   Sectors that can be written, from `start` on.
   */
  uint64_t capacity;
  /*
   Zero.
   */
  uint8_t reserved2[24];
};

/*
 Options of a log. Set all bytes to zero, then `struct_size`; 0 is the default of each field.
 */
struct zp_log_options {
  /*
   `sizeof(struct zp_log_options)`.
   */
  size_t struct_size;
  /*
   The id of the log. Each log of a disk has its own. The logs of a set have this id and those that follow.
   */
  uint64_t id;
  /*
   The number of the first zone.
   */
  uint32_t first_zone;
  /*
   How many zones. Conventional zones among them are skipped. Default: all up to the end of the disk.
   */
  uint32_t nr_zones;
  /*
   0 or `ZP_LOG_CREATE`.
   */
  uint32_t flags;
  /*
   Zero.
   */
  uint32_t reserved;
};

/*
 The address of a record: valid until the zone of the record is reset. It names the record, not only the place, and may be
 stored as it is.
 */
struct zp_log_address {
  /*
   The number of the record: one more than that of the record before it.
   */
  uint64_t sequence;
  /*
   The first byte of the record, counted from the start of the disk.
   */
  uint64_t position;
  /*
   The opening of the log that has written it.
   */
  uint32_t session;
  /*
   Zero.
   */
  uint32_t reserved;
};

/*
 The findings of opening a log.
 */
struct zp_log_recovery {
  /*
   The number of the oldest record, or `ZP_NO_RECORD`.
   */
  uint64_t first;
  /*
   The number of the newest record, or `ZP_NO_RECORD`.
   */
  uint64_t last;
  /*
   Bytes behind the newest record that a crash has torn. They were never durable.
   */
  uint64_t torn_bytes;
  /*
   Zones that hold records.
   */
  uint32_t zones_in_use;
  /*
   Places in the newest zone where records are missing or damaged. `zp_log_next` finds them.
   */
  uint32_t holes;
  /*
   Zones that the log cannot write: read-only or offline.
   */
  uint32_t lost;
  /*
   Zones that hold other data. The log does not touch them.
   */
  uint32_t foreign;
};

/*
 A record that `zp_log_next` has found.
 */
struct zp_log_record {
  /*
   The address of the record.
   */
  struct zp_log_address address;
  /*
   The data of the record. The cursor owns them until its next call.
   */
  const void *data;
  /*
   Bytes of the data.
   */
  size_t len;
};

/*
 Options of a test of power cuts. Set all bytes to zero, then `struct_size`; 0 is the default of each field.
 */
struct zp_crash_options {
  /*
   `sizeof(struct zp_crash_options)`.
   */
  size_t struct_size;
  /*
   The seed of the first run. Default: 1.
   */
  uint64_t first_seed;
  /*
   Runs of the work, each with the next seed. Default: 10.
   */
  uint64_t nr_seeds;
  /*
   Power cuts in total. Default: 1000.
   */
  uint64_t cuts;
  /*
   `ZP_CRASH_*`.
   */
  uint32_t flags;
  /*
   Zero.
   */
  uint32_t reserved;
};

/*
 The work of `zp_crash_test`: returns 0, or another number if it fails. It calls neither `longjmp` nor `pthread_exit`, and
 throws nothing.
 */
typedef int (*zp_work_fn)(struct zp_work *work, void *arg);

/*
 The check of `zp_crash_test`: returns 0 if all promises are kept, or another number, as that of `zp_cut_broken`. It calls neither
 `longjmp` nor `pthread_exit`, and throws nothing.
 */
typedef int (*zp_cut_fn)(struct zp_cut *cut, void *arg);

/*
 Counts of a test that passed.
 */
struct zp_crash_report {
  /*
   Runs of the work.
   */
  uint64_t runs;
  /*
   Commands of all runs that changed the disk.
   */
  uint64_t commands;
  /*
   Moments at which the power could be cut.
   */
  uint64_t points;
  /*
   Power cuts that were checked.
   */
  uint64_t cuts;
};

/*
 A power cut that breaks a promise: the smallest that was found.
 */
struct zp_crash_failure {
  /*
   All of it, in several lines, for people.
   */
  const char *text;
  /*
   The message of the check.
   */
  const char *message;
  /*
   The value of the environment variable `ZONEPLUG_CRASH` with which `zp_crash_test` makes only this cut.
   */
  const char *repeat;
  /*
   The seed of the run.
   */
  uint64_t seed;
  /*
   Events (commands sent, commands completed) of the run before the cut.
   */
  uint64_t point;
  /*
   The number of the first cut that failed, from 1 on, before the search for a smaller one.
   */
  uint64_t nr;
};

/*
 A host, and the file of the key by which it authenticates itself (DH-HMAC-CHAP).
 */
struct zp_host_key {
  /*
   The NQN of the host.
   */
  const char *nqn;
  /*
   The path of the file.
   */
  const char *path;
};

/*
 An initiator, and the file of the secret by which it authenticates itself (CHAP).
 */
struct zp_initiator_secret {
  /*
   The name of the initiator, such as `"iqn.2026-11.org.example:host"`.
   */
  const char *iqn;
  /*
   The path of the file.
   */
  const char *path;
};

/*
 Options of served disks. Set all bytes to zero, then `struct_size`; 0 and NULL are the default of each field.
 */
struct zp_serve_options {
  /*
   `sizeof(struct zp_serve_options)`.
   */
  size_t struct_size;
  /*
   Where to listen for NVMe/TCP. Default: `"127.0.0.1:0"`, which is a free port of this machine; with `iscsi`, nowhere.
   */
  const char *address;
  /*
   The name of the subsystem. Default: one of its own, with the number of the process.
   */
  const char *nqn;
  /*
   The NQNs of hosts that may connect. Default: all of this machine.
   */
  const char *const *hosts;
  /*
   Keys of hosts.
   */
  const struct zp_host_key *host_keys;
  /*
   The file of the key by which the disks' side authenticates itself.
   */
  const char *own_key;
  /*
   The path of the control socket, which `zoneplug status --socket PATH` asks. Default: in a temporary directory.
   */
  const char *socket;
  /*
   An address at which Prometheus reads metrics. Default: none.
   */
  const char *metrics;
  /*
   Elements of `hosts`.
   */
  uint32_t nr_hosts;
  /*
   Elements of `host_keys`.
   */
  uint32_t nr_host_keys;
  /*
   0, or a sum of `ZP_SERVE_ANY_HOST`, `ZP_SERVE_ANY_INITIATOR` and `ZP_SERVE_CONVENTIONAL_ONLY`.
   */
  uint32_t flags;
  /*
   Zero.
   */
  uint32_t reserved;
  /*
   Where to listen for iSCSI, such as `"127.0.0.1:3260"`. Default: nowhere.
   */
  const char *iscsi;
  /*
   The name of the target of iSCSI. Default: one of its own, with the number of the process.
   */
  const char *iqn;
  /*
   The names of initiators that may log in. Default: all of this machine.
   */
  const char *const *initiators;
  /*
   Secrets of initiators.
   */
  const struct zp_initiator_secret *initiator_secrets;
  /*
   The file of the secret by which the disks' side authenticates itself to initiators.
   */
  const char *target_secret;
  /*
   Elements of `initiators`.
   */
  uint32_t nr_initiators;
  /*
   Elements of `initiator_secrets`.
   */
  uint32_t nr_initiator_secrets;
};

/*
 An operation for a queue. Fields that an operation does not use are ignored, but for the reserved one.
 */
struct zp_op {
  /*
   Comes back in the completion.
   */
  uint64_t user_data;
  /*
   First sector of 512 bytes. Of an append: the start of the zone.
   */
  uint64_t sector;
  /*
   The memory of a read, write, append or report; with `iovcnt` an aligned array of `struct iovec` instead. The memory, and
   that array, belong to the library until the completion. A write or append only reads the memory, so several of
   them may share it.
   */
  void *buf;
  /*
   Bytes of `buf`, whole sectors; with `iovcnt` the sum of the pieces. Of a report: a multiple of
   `sizeof(struct zp_zone)`.
   */
  uint32_t len;
  /*
   Sectors of a discard, of zeroes, or of zone management. Data operations ignore it.
   */
  uint32_t nr_sectors;
  /*
   Pieces of a vectored read, write or append; 0: `buf` is the memory itself, as that of a report always is.
   */
  uint32_t iovcnt;
  /*
   `ZP_OP_*`.
   */
  uint8_t op;
  /*
   0.
   */
  uint8_t reserved;
  /*
   `ZP_FUA` and others.
   */
  uint16_t flags;
};

/*
 The end of an operation of a queue.
 */
struct zp_completion {
  /*
   That of the operation.
   */
  uint64_t user_data;
  /*
   First sector; of an append: where the data landed.
   */
  uint64_t sector;
  /*
   0, or a negative errno.
   */
  int32_t result;
  /*
   The number of zones that a report describes. 0 for other operations.
   */
  uint32_t nr_zones;
  /*
   `ZP_STATUS_*`: finer than `result`.
   */
  uint8_t status;
  /*
   `ZP_COMPLETION_*`.
   */
  uint8_t flags;
  /*
   Zero.
   */
  uint8_t reserved[6];
};

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

extern int pthread_setcancelstate(int state, int *old);

/*
 Returns why this thread's last failed call has failed, in one line: "" if none has failed. The text lives until this
 thread's next call that fails.
 */
const char *zp_error_message(void);

/*
 Returns what to try after this thread's last failed call, in one line. NULL if nothing is known. The text lives until
 this thread's next call that fails.
 */
const char *zp_error_hint(void);

/*
 Returns the name of what was wrong in this thread's last failed call, for a program to compare: "Exists" for a file that
 is there, "UnknownKey" for a key of a specification, "ZoneFull" for an operation. NULL if it has no name. The names are
 those of the enums of the Rust library. The text lives until this thread's next call that fails.
 */
const char *zp_error_reason(void);

/*
 A few words for a status of a completion, in English. The text lives for ever. NULL: there is no such status.
 */
const char *zp_status_name(uint8_t status);

/*
 The version of the library, such as `"0.1.0"`. The text lives for ever.
 */
const char *zp_version(void);

/*
 Opens the disk that `spec` names, such as `"mem,zones=64,zone-size=4M"`, `"disk.zbd"` or `"/dev/nvme0n1"`, and
 stores it in `*disk`. Returns 0, or a negative errno: -EINVAL if the specification is wrong, -ENOENT if there is no
 such file or drive, -EBUSY if it is in use, -EOPNOTSUPP if this build or system cannot open it. Starts threads.
 */
int zp_open(const char *spec,
            struct zp_disk **disk);

/*
 Closes a disk. NULL is allowed. No thread may be in a call with this disk, or use it afterwards. Queues stay usable;
 the device is closed with the last of them. Does not flush: what was acknowledged and not flushed is as durable as on
 any disk. In a child of a fork this does nothing.
 */
void zp_close(struct zp_disk *disk);

/*
 Stores a number of the disk in `*value`: its size and limits (`"sectors"`, `"nr_zones"`, `"zone_sectors"`,
 `"zone_capacity_sectors"`, `"logical_block_sectors"`, `"max_open_zones"`, ...) and what it has counted since it was
 opened (`"issued"`, `"parked"`, `"merged"`, `"rejected"`, ...). Names with `sectors` are in units of 512 bytes; a
 limit of 0 is none. `zp_property_name` lists them. Returns 0, or -ENOENT if there is no such property.
 */
int zp_property(struct zp_disk *disk,
                const char *name,
                uint64_t *value);

/*
 The name of a property, by its place from 0 on. NULL: there are no more. The text lives for ever.
 */
const char *zp_property_name(uint32_t nth);

/*
 Copies the value of an attribute, such as `"zoned_qd1_writes"`, to the `size` bytes at `buf`, as snprintf does: ends
 it with a zero byte, and returns the length of the whole value. -ENOENT: the disk has no such attribute.
 */
int zp_attribute(struct zp_disk *disk,
                 const char *name,
                 char *buf,
                 size_t size);

/*
 Changes an attribute, and returns when it has taken effect. -ENOENT: the disk has no such attribute. -EINVAL: it does
 not take this value. -EBUSY: the device did not finish what it has.
 */
int zp_set_attribute(struct zp_disk *disk,
                     const char *name,
                     const char *value);

/*
 Copies the name of the disk's nth attribute, from 0 on, to `buf`, as `zp_attribute` does. -ENOENT: there are no more.
 */
int zp_attribute_name(struct zp_disk *disk,
                      uint32_t nth,
                      char *buf,
                      size_t size);

/*
 Copies the plug dump to `buf`, as `zp_attribute` does: a line for each zone that is busy, stale or partly written, in
 the form of Linux's `zone_wplugs`. A second call may find a longer one.
 */
int zp_wplugs(struct zp_disk *disk,
              char *buf,
              size_t size);

/*
 Reads the zones of the device again, after something else has changed them. The disk does nothing else meanwhile.
 */
int zp_revalidate(struct zp_disk *disk);

/*
 Makes a disk in a new file, and stores its identity in `*identity`, unless that is NULL. `zp_open(path)` opens the disk.
 -EINVAL: such a disk is not possible, or has neither or both of `size` and `zones`. -EBUSY: the file exists, or with
 `ZP_CREATE_FORCE` is open as a disk.
 */
int zp_create(const char *path,
              const struct zp_create_options *options,
              struct zp_identity *identity);

/*
 Checks the disk in a file that no process writes. Returns the number of problems that are left: 0 for a sound disk. `flags`
 is 0 or `ZP_CHECK_REPAIR`. Stores counts in `*report`, unless that is NULL, and calls `line` with each finding and what was
 done about it. A problem that cannot be repaired is a negative errno: both copies of the superblock are damaged, or the
 file was cut.
 */
int zp_check(const char *path,
             uint32_t flags,
             struct zp_check_report *report,
             zp_line line,
             void *arg);

/*
 Gives the disk in a file that no process writes a new UUID, as a copy by `cp` needs one: it has that of the original. Stores
 the new identity in `*identity`, unless that is NULL.
 */
int zp_new_uuid(const char *path,
                struct zp_identity *identity);

/*
 Makes a consistent copy of an open disk in a new file. The disk stays in use; its operations wait for a moment. `flags` is 0
 or `ZP_SNAPSHOT_KEEP_UUID`. Stores what was made in `*report`, unless that is NULL, and calls `line` with each problem of the
 disk, such as damage. -EOPNOTSUPP: the disk is not in one file.
 */
int zp_snapshot(struct zp_disk *disk,
                const char *path,
                uint32_t flags,
                struct zp_snapshot_report *report,
                zp_line line,
                void *arg);

/*
 Stores up to `max` events with numbers above `after`, the oldest first, and returns how many; 0 for `after` begins with
 the oldest that the disk has. It keeps the last 256: if the first number is above `after + 1`, those in between are
 lost. Never waits.
 */
int zp_events(struct zp_disk *disk,
              uint64_t after,
              struct zp_event *events,
              uint32_t max);

/*
 A descriptor that becomes readable when `zp_events` should be called, for poll(2), epoll(7) and event loops; at first it
 is readable. The library reads it; the program only waits for it, does not close it, and takes it out of its epoll set
 before `zp_close`. A call of `zp_events` that fills its array leaves it readable. The first call makes the descriptor.
 -EMFILE: too many files.
 */
int zp_events_fd(struct zp_disk *disk);

/*
 Reads `len` bytes at `sector` into `buf`. Both are whole logical blocks. If it fails, `buf` is unchanged.
 */
int zp_read(struct zp_disk *disk,
            uint64_t sector,
            void *buf,
            size_t len);

/*
 Reads into several pieces of memory, one after the other. A piece may have any length; together they are whole logical
 blocks. If it fails, they are unchanged.
 */
int zp_readv(struct zp_disk *disk,
             uint64_t sector,
             const struct iovec *iov,
             int iovcnt);

/*
 Writes `len` bytes of `buf` at `sector`, which is the write pointer of a sequential zone. Both are whole logical
 blocks. `flags` is 0 or `ZP_FUA`. -EIO if the sector is not the write pointer; `zp_error_message` says so.
 */
int zp_write(struct zp_disk *disk,
             uint64_t sector,
             const void *buf,
             size_t len,
             uint32_t flags);

/*
 As `zp_write`, from several pieces of memory, one after the other. A piece may have any length.
 */
int zp_writev(struct zp_disk *disk,
              uint64_t sector,
              const struct iovec *iov,
              int iovcnt,
              uint32_t flags);

/*
 Writes `len` bytes of `buf` wherever the write pointer of the zone that starts at `zone_start` is. Returns the sector
 at which they landed, or a negative errno. `flags` is 0 or `ZP_FUA`.
 */
int64_t zp_append(struct zp_disk *disk,
                  uint64_t zone_start,
                  const void *buf,
                  size_t len,
                  uint32_t flags);

/*
 As `zp_append`, from several pieces of memory, one after the other. A piece may have any length.
 */
int64_t zp_appendv(struct zp_disk *disk,
                   uint64_t zone_start,
                   const struct iovec *iov,
                   int iovcnt,
                   uint32_t flags);

/*
 Appends each piece of memory by itself to the zone that starts at `zone_start`, with several at the device at a time, and
 stores in `sectors[i]` where piece i landed, or a negative errno. Pieces of equal length land in the order of the list. Each
 piece is whole logical blocks. `flags` is 0 or `ZP_FUA`. Returns 0 if all have landed, else the errno of the first piece
 that has not. If a piece has a length that no append of the disk can have, none is sent.
 */
int zp_append_each(struct zp_disk *disk,
                   uint64_t zone_start,
                   const struct iovec *iov,
                   int iovcnt,
                   uint32_t flags,
                   int64_t *sectors);

/*
 Makes durable what was acknowledged.
 */
int zp_flush(struct zp_disk *disk);

/*
 Writes `nr_sectors` of zeroes at `sector`, in order like a write.
 */
int zp_write_zeroes(struct zp_disk *disk, uint64_t sector, uint64_t nr_sectors);

/*
 Forgets the data of `nr_sectors` of conventional zones.
 */
int zp_discard(struct zp_disk *disk, uint64_t sector, uint64_t nr_sectors);

/*
 Empties the zones of a range, which begins and ends with a zone.
 */
int zp_reset(struct zp_disk *disk, uint64_t sector, uint64_t nr_sectors);

/*
 Empties every sequential zone.
 */
int zp_reset_all(struct zp_disk *disk);

/*
 Makes the zones of a range full.
 */
int zp_finish(struct zp_disk *disk, uint64_t sector, uint64_t nr_sectors);

/*
 Opens the zones of a range, which count against the limit of open zones until they are closed or full.
 */
int zp_open_zone(struct zp_disk *disk,
                 uint64_t sector,
                 uint64_t nr_sectors);

/*
 Closes the open zones of a range.
 */
int zp_close_zone(struct zp_disk *disk, uint64_t sector, uint64_t nr_sectors);

/*
 Describes up to `nr_zones` zones from the one that holds `sector` on, as the device reports them. Returns how many.
 `flags` is 0 or `ZP_RESYNC`.
 */
int zp_report(struct zp_disk *disk,
              uint64_t sector,
              struct zp_zone *zones,
              uint32_t nr_zones,
              uint32_t flags);

/*
 Opens a log in the sequential zones of `disk`, or begins one if its zones are empty, and stores it in `*log`. `options` may be
 NULL. All records that it finds are durable. Do not open a log a second time while it is open. -EEXIST: the zones hold other
 data. -EINVAL: there are fewer than two zones.
 */
int zp_log_open(struct zp_disk *disk,
                const struct zp_log_options *options,
                struct zp_log **log);

/*
 Opens a set of `nr_logs` logs that share their zones and write side by side, and stores them in the array `logs`. The same
 zones must be opened with the same id and number of logs. Each is closed by itself.
 */
int zp_log_open_set(struct zp_disk *disk,
                    const struct zp_log_options *options,
                    uint32_t nr_logs,
                    struct zp_log **logs);

/*
 Closes a log. NULL is allowed. No thread may be in a call with it. Cursors stay usable. Does not sync.
 */
void zp_log_close(struct zp_log *log);

/*
 Appends a record of `len` bytes, and stores its address in `*at`, unless that is NULL. It is acknowledged when this returns, and
 durable after the next `zp_log_sync`; with `ZP_LOG_SYNC` in `flags` it is durable at once. -ENOSPC: the log is full, and
 nothing was written; `zp_log_trim` makes room. -EMSGSIZE: no zone can hold the record.
 */
int zp_log_append(struct zp_log *log,
                  const void *data,
                  size_t len,
                  uint32_t flags,
                  struct zp_log_address *at);

/*
 Appends records in order, in as few writes as possible: each piece of memory is a record. Stores their addresses in the array
 `at`, unless that is NULL. After an error the first of them may be in the log.
 */
int zp_log_append_batch(struct zp_log *log,
                        const struct iovec *records,
                        int nr_records,
                        uint32_t flags,
                        struct zp_log_address *at);

/*
 Makes all records durable that were acknowledged before the call. If it fails, the log takes no more records
 (-ENOTRECOVERABLE) until it is opened again.
 */
int zp_log_sync(struct zp_log *log);

/*
 Copies the record at `*at` to the `size` bytes at `buf`, as much as fits, and returns the length of the whole record. -ESTALE:
 it is not in the log (any more). -EBADMSG: it is damaged.
 */
int64_t zp_log_read(struct zp_log *log,
                    const struct zp_log_address *at,
                    void *buf,
                    size_t size);

/*
 Gives up the records before `*before`: resets each zone that holds only such records. Returns how many zones were reset.
 The newest zone with records is never reset.
 */
int zp_log_trim(struct zp_log *log,
                const struct zp_log_address *before);

/*
 Resets the zone with the oldest records. Returns 1, or 0 if only one zone holds records: the log keeps that zone.
 */
int zp_log_reset_oldest(struct zp_log *log);

/*
 Stores the number of the oldest record in `*first`, and that of the next record to be appended in `*next`: both are equal before
 the first record. Either may be NULL.
 */
int zp_log_numbers(struct zp_log *log,
                   uint64_t *first,
                   uint64_t *next);

/*
 Returns the length of the longest record that the log accepts, in bytes.
 */
int64_t zp_log_max_record(struct zp_log *log);

/*
 Stores in `*found` what opening the log has found.
 */
int zp_log_recovered(struct zp_log *log, struct zp_log_recovery *found);

/*
 Stores in `*cursor` a cursor before the record at `*from`, or before the oldest one if `from` is NULL. -ESTALE: that record is
 not in the log.
 */
int zp_log_cursor_open(struct zp_log *log,
                       const struct zp_log_address *from,
                       struct zp_log_cursor **cursor);

/*
 Goes to the next record, and stores it in `*record`. Returns 1; 0 at the end, where a later call finds what was appended meanwhile.
 -ENODATA: records are missing here. -EBADMSG: one is damaged. After either, the next call goes on behind them.
 */
int zp_log_next(struct zp_log_cursor *cursor,
                struct zp_log_record *record);

/*
 Closes a cursor. NULL is allowed.
 */
void zp_log_cursor_close(struct zp_log_cursor *cursor);

/*
 Runs `work` on an empty disk in memory once for each seed, cuts the power at many moments, and has `check` look at what each cut
 has left. `disk` is a specification of the kind `mem`, such as `"mem,zones=8,zone-size=256K"`; small disks are quick, and their
 zones become full. `options` may be NULL. Both functions get `arg`.

 Returns 0 if all promises were kept, and stores counts in `*report`. Returns 1 at the first promise that a cut breaks, and stores
 the smallest such cut in `*failure`, for `zp_crash_failure_free`. Both may be NULL. -EINVAL: the specification is wrong, or the
 work fails without a power cut. If the environment variable `ZONEPLUG_CRASH` names a cut, makes only that one.
 */
int zp_crash_test(const char *disk,
                  const struct zp_crash_options *options,
                  zp_work_fn work,
                  zp_cut_fn check,
                  void *arg,
                  struct zp_crash_report *report,
                  struct zp_crash_failure **failure);

/*
 Frees a failure. NULL is allowed.
 */
void zp_crash_failure_free(struct zp_crash_failure *failure);

/*
 The disk of a run, empty at its start. It belongs to the library, which closes it after the work: the work closes what it has opened on
 it, and not the disk.
 */
struct zp_disk *zp_work_disk(struct zp_work *work);

/*
 The seed of a run, for random work.
 */
uint64_t zp_work_seed(struct zp_work *work);

/*
 Declares that from now on no power cut may undo a fact, of which the check gets these `len` bytes. To be called, from any thread,
 when the code says that data are durable.
 */
int zp_work_promise(struct zp_work *work,
                    const void *data,
                    size_t len);

/*
 The disk that a cut has left, as a program finds it after a crash. It belongs to the library, as that of the work does.
 */
struct zp_disk *zp_cut_disk(struct zp_cut *cut);

/*
 The nth promise that was made before the cut, from 0 on, and its length in `*len`. NULL: there are no more. The memory belongs to
 the library, until the check returns.
 */
const void *zp_cut_promise(struct zp_cut *cut,
                           size_t nth,
                           size_t *len);

/*
 Says which promise is broken. Returns 1, for the check to return.
 */
int zp_cut_broken(struct zp_cut *cut, const char *why);

/*
 Opens an empty disk in memory with a volatile write cache, whose power `zp_crash_cut` cuts. `spec` is of the kind `mem`. `seed` chooses
 what each cut takes.
 */
int zp_crash_open(const char *spec,
                  uint64_t seed,
                  struct zp_disk **disk);

/*
 Cuts the power of a disk of `zp_crash_open` and restores it; from then on the handle is of the disk that is left, as a program finds it
 after a crash. Each sequential zone keeps a random prefix of what was written, at least what a flush or FUA covers. No other thread
 may be in a call with the disk. Queues and logs of it have to be closed and opened again; events are numbered from 1 again.
 */
int zp_crash_cut(struct zp_disk *disk);

/*
 Serves the `nr` disks of an array of specifications, and stores what is served in `*serving`: over NVMe/TCP, as namespaces 1, 2 and
 so on of one subsystem; or, if the options have an address of iSCSI, as LUN 0, 1 and so on of one target, and over NVMe/TCP only if
 they have an address of that too. `options` may be NULL. Threads of the library serve them; the program goes on. While a disk in a file is
 served, no other program can write it, nor this one. -EOPNOTSUPP: this build serves no disks.
 */
int zp_serve(const char *const *specs,
             uint32_t nr,
             const struct zp_serve_options *options,
             struct zp_serving **serving);

/*
 The address at which the disks are served over NVMe/TCP, such as `"127.0.0.1:40123"`; empty if they are not. The text lives until
 `zp_serving_close`. NULL for NULL.
 */
const char *zp_serving_address(struct zp_serving *serving);

/*
 The NQN of the subsystem; empty without NVMe/TCP. The text lives until `zp_serving_close`. NULL for NULL.
 */
const char *zp_serving_nqn(struct zp_serving *serving);

/*
 The address at which the disks are served over iSCSI; empty if they are not. The text lives until `zp_serving_close`. NULL for NULL.
 */
const char *zp_serving_iscsi_address(struct zp_serving *serving);

/*
 The name of the target; empty without iSCSI. The text lives until `zp_serving_close`. NULL for NULL.
 */
const char *zp_serving_iqn(struct zp_serving *serving);

/*
 The path of the control socket. The text lives until `zp_serving_close`. NULL for NULL.
 */
const char *zp_serving_socket(struct zp_serving *serving);

/*
 Copies the nth line, from 0 on, of what `zoneplug serve` prints to `buf`, as `zp_attribute` does: how clients reach the disks.
 -ENOENT: there are no more.
 */
int zp_serving_line(struct zp_serving *serving,
                    uint32_t nth,
                    char *buf,
                    size_t size);

/*
 Returns 1 if the disks are still served, 0 if not: then `zp_serving_stop` says why.
 */
int zp_serving_is_served(struct zp_serving *serving);

/*
 Stops serving, and makes all data durable. Returns what ended the server before, if it has failed. A further call does nothing.
 */
int zp_serving_stop(struct zp_serving *serving);

/*
 Stops serving, if `zp_serving_stop` has not, and frees what `zp_serve` gave. NULL is allowed. In a child of a fork this does nothing.
 */
void zp_serving_close(struct zp_serving *serving);

/*
 Opens a queue of `disk` for up to `depth` operations at a time, 1 to 4096, and stores it in `*queue`. It belongs to
 the calling thread: calls by others are refused with -EPERM. It may outlive the disk's handle.
 */
int zp_queue_open(struct zp_disk *disk,
                  uint32_t depth,
                  struct zp_queue **queue);

/*
 Waits until nothing of the queue is in flight, at most `timeout_ms` (-1: without end), and closes it. Completions that
 were not fetched are lost; the memory of all operations is the caller's again. -EBUSY if something is still in
 flight: then the queue stays open, and has all its completions. NULL is allowed. In a child of a fork this does nothing.
 */
int zp_queue_close(struct zp_queue *queue,
                   int timeout_ms);

/*
 Submits `nr` operations in the order of the array, as writes to one zone need. Returns how many the queue took: fewer
 if it is full, or if the next one is wrong, as a later call that begins with it says. -EAGAIN: it is full. -EINVAL:
 the first operation is wrong in a way that needs no disk to see it, such as an unknown `op`. What the disk refuses
 comes back as a completion.
 */
int zp_queue_submit(struct zp_queue *queue,
                    const struct zp_op *ops,
                    uint32_t nr);

/*
 Stores up to `max` completions in the array, without waiting, and returns how many. A queue whose thread sleeps
 elsewhere makes progress too, but completions come only from here.
 */
int zp_queue_poll(struct zp_queue *queue,
                  struct zp_completion *completions,
                  uint32_t max);

/*
 As `zp_queue_poll`, but waits until there are `min` completions, nothing is in flight, or `timeout_ms` have passed
 (-1: without end).
 */
int zp_queue_wait(struct zp_queue *queue,
                  struct zp_completion *completions,
                  uint32_t min,
                  uint32_t max,
                  int timeout_ms);

/*
 A descriptor that becomes readable when `zp_queue_poll` should be called, for poll(2), epoll(7) and event loops. The
 library reads it; the program only waits for it, does not close it, and takes it out of its epoll set before it closes
 the queue. Call `zp_queue_poll` until it returns 0 before each sleep. The first call makes the descriptor. -EMFILE: too many files.
 */
int zp_queue_fd(struct zp_queue *queue);

/*
 How many operations were submitted whose completions have not been fetched.
 */
int zp_queue_in_flight(struct zp_queue *queue);

/*
 Allocates `size` zero bytes, aligned to 4096 as direct I/O of any drive needs it. NULL if there is not enough memory.
 A queue moves data from and to other memory too; a drive then copies, or refuses.
 */
void *zp_buf_alloc(size_t size);

/*
 Frees a buffer of `zp_buf_alloc`. NULL is allowed. A buffer that a queue still has must not be freed.
 */
void zp_buf_free(void *buf);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* ZONEPLUG_H */
