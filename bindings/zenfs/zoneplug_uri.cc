// The name `zenfs://zoneplug:SPEC`, by which RocksDB's programs open ZenFS on one of our disks (`--fs_uri=`).
//
// SPDX-License-Identifier: MIT OR Apache-2.0

#include <unistd.h>
#include <zoneplug.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "fs_zenfs.h"
#include "rocksdb/utilities/object_registry.h"
#include "zoneplug_backend.h"

namespace ROCKSDB_NAMESPACE {
namespace {

constexpr char kScheme[] = "zenfs";
constexpr char kSeparator[] = "://zoneplug:";

// The first sequential zones, which ZenFS keeps for its metadata.
constexpr unsigned kMetadataZones = 3;

// Whether nothing is written in any sequential zone after the first so many.
Status IsBlank(ZoneplugDisk &disk, unsigned first, bool *blank) {
  std::vector<zp_zone> zones(disk.Property("nr_zones"));
  int found = zp_report(disk.handle(), 0, zones.data(), zones.size(), 0);
  if (found != static_cast<int>(zones.size())) return Status::IOError("cannot list the zones", zp_error_message());
  *blank = true;
  unsigned sequential = 0;
  for (const zp_zone &zone : zones) {
    if (zone.zone_type == ZP_ZONE_CONVENTIONAL || sequential++ < first) continue;
    if (zone.cond != ZP_COND_EMPTY) *blank = false;
  }
  return Status::OK();
}

// A folder for ZenFS's lock and log files: ZONEPLUG_ZENFS_AUX, or a new one below TMPDIR.
Status AuxPath(std::string *path) {
  if (const char *named = getenv("ZONEPLUG_ZENFS_AUX")) {
    *path = named;
  } else {
    const char *tmp = getenv("TMPDIR");
    std::string made = std::string(tmp && *tmp ? tmp : "/tmp") + "/zenfs-XXXXXX";
    if (!mkdtemp(made.data())) return Status::IOError("cannot make " + made, strerror(errno));
    *path = made;
  }
  if (path->empty() || path->front() != '/') return Status::InvalidArgument("not an absolute path", *path);
  if (path->back() != '/') *path += '/';
  return Status::OK();
}

Status Format(const std::string &name) {
  std::string aux;
  Status s = AuxPath(&aux);
  if (!s.ok()) return s;
  auto *zbd = new ZonedBlockDevice(name, ZbdBackendType::kBlockDev, nullptr);
  s = zbd->Open(false, true);
  if (!s.ok()) {
    delete zbd;
    return s;
  }
  // Owns `zbd`.
  ZenFS zenfs(zbd, FileSystem::Default(), nullptr);
  return zenfs.MkFS(aux, 0, false);
}

// Ends what a kill has interrupted. RocksDB changes to a new manifest by a rename of `NUMBER.dbtmp` to `CURRENT`; ZenFS
// deletes the old `CURRENT` before it renames, and makes each durable by itself. In between the database has none, and
// RocksDB does not open it. The file that was to be renamed is whole: RocksDB has synced it.
Status FinishRenames(ZenFS &zenfs) {
  for (const auto &[file, hint] : zenfs.GetWriteLifeTimeHints()) {
    const std::string suffix = ".dbtmp";
    size_t name = file.rfind('/') + 1, end = file.size() - std::min(suffix.size(), file.size());
    if (file.compare(end, suffix.size(), suffix) != 0 || end <= name) continue;
    const std::string folder = file.substr(0, name), manifest = "MANIFEST-" + file.substr(name, end - name);
    if (zenfs.FileExists(folder + "CURRENT", IOOptions(), nullptr).ok()) continue;
    if (!zenfs.FileExists(folder + manifest, IOOptions(), nullptr).ok()) continue;
    std::string content;
    IOStatus s = ReadFileToString(&zenfs, file, &content);
    if (s.ok() && content == manifest + "\n") s = zenfs.RenameFile(file, folder + "CURRENT", IOOptions(), nullptr);
    if (!s.ok()) return std::move(s);
  }
  return Status::OK();
}

// ZenFS on one of our disks. ZenFS itself knows whole paths of files and no folders, but it makes those of a database in its
// folder outside, for the lock and the log files. There "/srv/db" has no "/srv" above it, so folders are made with those
// above them.
class WithFolders : public FileSystemWrapper {
 public:
  explicit WithFolders(FileSystem *zenfs) : FileSystemWrapper(std::shared_ptr<FileSystem>(zenfs)) {}

  static const char *kClassName() { return "ZenFSOnZoneplug"; }
  const char *Name() const override { return kClassName(); }

  IOStatus CreateDir(const std::string &path, const IOOptions &options, IODebugContext *debug) override {
    IOStatus s = CreateAbove(path, options, debug);
    return s.ok() ? target()->CreateDir(path, options, debug) : s;
  }

  IOStatus CreateDirIfMissing(const std::string &path, const IOOptions &options, IODebugContext *debug) override {
    IOStatus s = CreateAbove(path, options, debug);
    return s.ok() ? target()->CreateDirIfMissing(path, options, debug) : s;
  }

 private:
  // Makes the folders above a folder.
  IOStatus CreateAbove(const std::string &path, const IOOptions &options, IODebugContext *debug) {
    const size_t end = path.find_last_not_of('/');
    IOStatus s;
    for (size_t at = path.find('/', 1); s.ok() && at < end && end != std::string::npos; at = path.find('/', at + 1)) {
      s = target()->CreateDirIfMissing(path.substr(0, at), options, debug);
    }
    return s;
  }
};

// Opens ZenFS on a disk. A disk on which nothing is written gets an empty ZenFS first, as a disk in memory is each time.
// So does one whose metadata are not whole and that has no data: a kill has interrupted its formatting.
Status Open(const std::string &spec, FileSystem **fs) {
  const std::string name = kZoneplugPrefix + spec;
  // Kept until ZenFS has it, so that a disk in memory outlives its formatting.
  std::shared_ptr<ZoneplugDisk> disk;
  Status s = ZoneplugDisk::Get(spec, &disk);
  if (!s.ok()) return s;
  bool blank = false;
  s = IsBlank(*disk, 0, &blank);
  if (s.ok() && blank) s = Format(name);
  if (s.ok()) s = NewZenFS(fs, ZbdBackendType::kBlockDev, name);
  if (!s.ok()) {
    Status without_data = IsBlank(*disk, kMetadataZones, &blank);
    if (!without_data.ok() || !blank) return s;
    s = Format(name);
    if (s.ok()) s = NewZenFS(fs, ZbdBackendType::kBlockDev, name);
    if (!s.ok()) return s;
  }
  // NewZenFS has made a ZenFS.
  s = FinishRenames(static_cast<ZenFS &>(**fs));
  if (!s.ok()) {
    delete *fs;
    *fs = nullptr;
    return s;
  }
  *fs = new WithFolders(*fs);
  return s;
}

// RocksDB searches the library that was added last first, so ZenFS's own rule for `zenfs://` does not see our names.
[[maybe_unused]] const bool registered = [] {
  auto library = ObjectRegistry::Default()->AddLibrary("zoneplug");
  library->AddFactory<FileSystem>(
      ObjectLibrary::PatternEntry(kScheme, false).AddSeparator(kSeparator),
      [](const std::string &uri, std::unique_ptr<FileSystem> *guard, std::string *error) {
        FileSystem *fs = nullptr;
        Status s = Open(uri.substr(strlen(kScheme) + strlen(kSeparator)), &fs);
        if (!s.ok()) *error = s.ToString();
        guard->reset(fs);
        return fs;
      });
  return true;
}();

}  // namespace
}  // namespace ROCKSDB_NAMESPACE
