// A back end of ZenFS, RocksDB's file system for zoned disks, over libzoneplug.
//
// SPDX-License-Identifier: MIT OR Apache-2.0
//
// The name `zoneplug:SPEC` means the disk that the specification names, in this process: no block device, no root. Any
// other name is a block device, as in ZenFS itself.

#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "rocksdb/status.h"
#include "zbdlib_zenfs.h"

struct zp_disk;

namespace ROCKSDB_NAMESPACE {

// What a name of one of our disks begins with.
inline constexpr char kZoneplugPrefix[] = "zoneplug:";

// An open disk. All back ends of a process that name the same specification share it, so a disk in memory lives until
// the last of them is gone.
class ZoneplugDisk {
 public:
  // Opens the disk, or finds it open.
  static Status Get(const std::string &spec, std::shared_ptr<ZoneplugDisk> *disk);
  ~ZoneplugDisk();
  ZoneplugDisk(const ZoneplugDisk &) = delete;
  ZoneplugDisk &operator=(const ZoneplugDisk &) = delete;

  // A number of the disk, see `zp_property`.
  uint64_t Property(const char *name) const;

  zp_disk *handle() const { return handle_; }

  // A disk has at most one owner, which may write.
  bool TryOwn() { return !owned_.exchange(true); }
  void Disown() { owned_ = false; }

 private:
  explicit ZoneplugDisk(zp_disk *handle) : handle_(handle) {}

  zp_disk *const handle_;
  std::atomic<bool> owned_{false};
};

// Lists zones as libzbd does, so what the base class reads of a zone holds for ours.
class ZoneplugBackend : public ZbdlibBackend {
 public:
  explicit ZoneplugBackend(std::string name);
  ~ZoneplugBackend() override;

  IOStatus Open(bool readonly, bool exclusive, unsigned int *max_active_zones, unsigned int *max_open_zones) override;
  std::unique_ptr<ZoneList> ListZones() override;
  IOStatus Reset(uint64_t start, bool *offline, uint64_t *max_capacity) override;
  IOStatus Finish(uint64_t start) override;
  IOStatus Close(uint64_t start) override;
  int Read(char *buf, int size, uint64_t pos, bool direct) override;
  int Write(char *data, uint32_t size, uint64_t pos) override;
  int InvalidateCache(uint64_t pos, uint64_t size) override;
  std::string GetFilename() override;

 private:
  // The sectors of the zone that starts at this byte: the last zone may be shorter than the others.
  uint64_t ZoneSectors(uint64_t start) const;

  const std::string name_;
  const bool ours_;
  std::shared_ptr<ZoneplugDisk> disk_;
  bool owner_ = false;
  uint64_t sectors_ = 0;
  uint64_t logical_block_ = 0;
};

}  // namespace ROCKSDB_NAMESPACE
