// SPDX-License-Identifier: MIT OR Apache-2.0

#include "zoneplug_backend.h"

#include <sys/uio.h>
#include <zoneplug.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <map>
#include <mutex>
#include <vector>

namespace ROCKSDB_NAMESPACE {
namespace {

constexpr uint64_t kSector = 512;

// ZenFS keeps two zones of each limit for itself, and each file that RocksDB writes has a zone: the manifest, a log, the next
// log, tables. Where there are too few (six in a test), ZenFS waits for ever.
constexpr uint64_t kFewestZones = 8;

// What was wrong in this thread's last call.
std::string Why() {
  std::string why = zp_error_message();
  if (const char *hint = zp_error_hint()) why += std::string("; try: ") + hint;
  return why;
}

IOStatus Failed(const char *what, uint64_t start) {
  return IOStatus::IOError(std::string(what) + " of the zone at byte " + std::to_string(start), Why());
}

// A call as ZenFS expects it of pread and pwrite: what moved, or -1 and errno.
int Moved(int result, int size) {
  if (result >= 0) return size;
  errno = -result;
  return -1;
}

// The disks that are open. Lives for ever: RocksDB's objects may outlive the statics of this library.
std::mutex open_disks_mutex;
std::map<std::string, std::weak_ptr<ZoneplugDisk>> &OpenDisks() {
  static auto *disks = new std::map<std::string, std::weak_ptr<ZoneplugDisk>>;
  return *disks;
}

}  // namespace

Status ZoneplugDisk::Get(const std::string &spec, std::shared_ptr<ZoneplugDisk> *disk) {
  std::lock_guard<std::mutex> lock(open_disks_mutex);
  std::weak_ptr<ZoneplugDisk> &known = OpenDisks()[spec];
  *disk = known.lock();
  if (*disk) return Status::OK();
  zp_disk *handle = nullptr;
  int result = zp_open(spec.c_str(), &handle);
  if (result == -EBUSY) return Status::Busy(Why());
  if (result == -ENOENT) return Status::PathNotFound(Why());
  if (result < 0) return Status::InvalidArgument(Why());
  disk->reset(new ZoneplugDisk(handle));
  known = *disk;
  return Status::OK();
}

ZoneplugDisk::~ZoneplugDisk() { zp_close(handle_); }

uint64_t ZoneplugDisk::Property(const char *name) const {
  uint64_t value = 0;
  zp_property(handle_, name, &value);
  return value;
}

ZoneplugBackend::ZoneplugBackend(std::string name)
    : ZbdlibBackend(name), name_(name), ours_(name.rfind(kZoneplugPrefix, 0) == 0) {}

ZoneplugBackend::~ZoneplugBackend() {
  if (owner_) disk_->Disown();
}

std::string ZoneplugBackend::GetFilename() { return ours_ ? name_ : ZbdlibBackend::GetFilename(); }

IOStatus ZoneplugBackend::Open(bool readonly, bool exclusive, unsigned int *max_active_zones,
                               unsigned int *max_open_zones) {
  if (!ours_) return ZbdlibBackend::Open(readonly, exclusive, max_active_zones, max_open_zones);
  Status opened = ZoneplugDisk::Get(name_.substr(sizeof(kZoneplugPrefix) - 1), &disk_);
  if (!opened.ok()) return status_to_io_status(std::move(opened));
  if (exclusive) {
    owner_ = disk_->TryOwn();
    if (!owner_) return IOStatus::Busy("this process has mounted it already", name_);
  }
  sectors_ = disk_->Property("sectors");
  logical_block_ = disk_->Property("logical_block_sectors") * kSector;
  block_sz_ = std::max(logical_block_, disk_->Property("write_granularity_sectors") * kSector);
  zone_sz_ = disk_->Property("zone_sectors") * kSector;
  nr_zones_ = disk_->Property("nr_zones");
  *max_active_zones = disk_->Property("max_active_zones");
  *max_open_zones = disk_->Property("max_open_zones");
  for (unsigned int limit : {*max_active_zones, *max_open_zones}) {
    if (limit != 0 && limit < kFewestZones) {
      return IOStatus::NotSupported("ZenFS needs " + std::to_string(kFewestZones) + " open and active zones, the disk takes " +
                                    std::to_string(limit));
    }
  }
  return IOStatus::OK();
}

std::unique_ptr<ZoneList> ZoneplugBackend::ListZones() {
  if (!ours_) return ZbdlibBackend::ListZones();
  std::vector<zp_zone> zones(nr_zones_);
  if (zp_report(disk_->handle(), 0, zones.data(), nr_zones_, 0) != static_cast<int>(nr_zones_)) return nullptr;
  auto *listed = static_cast<zbd_zone *>(calloc(nr_zones_, sizeof(zbd_zone)));
  if (!listed) return nullptr;
  for (uint32_t i = 0; i < nr_zones_; i++) {
    const zp_zone &zone = zones[i];
    zbd_zone &z = listed[i];
    z.start = zone.start * kSector;
    z.len = zone.len * kSector;
    z.capacity = zone.capacity * kSector;
    z.type = zone.zone_type;
    z.cond = zone.cond == ZP_COND_ACTIVE ? unsigned{ZP_COND_CLOSED} : zone.cond;
    // ZenFS reads its metadata to the write pointer, and recovers a file that was open from its last known place to there.
    // Of a full zone that is the end of what can be written: past it there are only zeroes, with which ZenFS fails.
    bool has_pointer = zone.zone_type != ZP_ZONE_CONVENTIONAL && zone.wp != UINT64_MAX;
    z.wp = has_pointer ? std::min(zone.wp, zone.start + zone.capacity) * kSector : z.start;
  }
  return std::make_unique<ZoneList>(listed, nr_zones_);
}

uint64_t ZoneplugBackend::ZoneSectors(uint64_t start) const {
  return std::min(zone_sz_ / kSector, sectors_ - start / kSector);
}

IOStatus ZoneplugBackend::Reset(uint64_t start, bool *offline, uint64_t *max_capacity) {
  if (!ours_) return ZbdlibBackend::Reset(start, offline, max_capacity);
  zp_zone zone;
  if (zp_reset(disk_->handle(), start / kSector, ZoneSectors(start)) < 0) return Failed("reset", start);
  if (zp_report(disk_->handle(), start / kSector, &zone, 1, 0) != 1) return Failed("report", start);
  *offline = zone.cond == ZP_COND_OFFLINE;
  *max_capacity = *offline ? 0 : zone.capacity * kSector;
  return IOStatus::OK();
}

IOStatus ZoneplugBackend::Finish(uint64_t start) {
  if (!ours_) return ZbdlibBackend::Finish(start);
  if (zp_finish(disk_->handle(), start / kSector, ZoneSectors(start)) < 0) return Failed("finish", start);
  return IOStatus::OK();
}

// A failed close is no error. The zone was opened by a write, so the disk closes it when it needs the place, and its data
// are there. After an error ZenFS would keep the place for ever, and wait for it in the end.
IOStatus ZoneplugBackend::Close(uint64_t start) {
  if (!ours_) return ZbdlibBackend::Close(start);
  zp_close_zone(disk_->handle(), start / kSector, ZoneSectors(start));
  return IOStatus::OK();
}

int ZoneplugBackend::Read(char *buf, int size, uint64_t pos, bool direct) {
  if (!ours_) return ZbdlibBackend::Read(buf, size, pos, direct);
  uint64_t end = sectors_ * kSector;
  if (size <= 0 || pos >= end) return 0;
  size = static_cast<int>(std::min<uint64_t>(size, end - pos));
  uint64_t before = pos % logical_block_;
  uint64_t after = (logical_block_ - (pos + size) % logical_block_) % logical_block_;
  if (before + after == 0) return Moved(zp_read(disk_->handle(), pos / kSector, buf, size), size);
  // A disk reads whole blocks: what is read beside the caller's bytes goes to memory that is thrown away.
  std::vector<char> beside(before + after);
  iovec pieces[] = {{beside.data(), before}, {buf, static_cast<size_t>(size)}, {beside.data() + before, after}};
  return Moved(zp_readv(disk_->handle(), (pos - before) / kSector, pieces, 3), size);
}

// ZenFS takes what a write has acknowledged for durable, in the order in which it wrote: its syncs end with a write, it
// never flushes, and its recovery stops if a zone has less than the metadata in another zone say. So each write is.
int ZoneplugBackend::Write(char *data, uint32_t size, uint64_t pos) {
  if (!ours_) return ZbdlibBackend::Write(data, size, pos);
  return Moved(zp_write(disk_->handle(), pos / kSector, data, size, ZP_FUA), static_cast<int>(size));
}

int ZoneplugBackend::InvalidateCache(uint64_t pos, uint64_t size) {
  return ours_ ? 0 : ZbdlibBackend::InvalidateCache(pos, size);
}

}  // namespace ROCKSDB_NAMESPACE
