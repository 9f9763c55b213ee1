// A database that scripts/rocksdb kills, and what it must hold afterwards.
//
//   victim write URI DB SEED RECORD [COUNT]    writes until it is killed, or until COUNT operations are there
//   victim verify URI DB SEED                  prints how many operations are there, and compares the whole database
//
// Operation N is a batch that follows from the seed and N: it puts or deletes some keys, and puts N under the key
// `count`. Two of three are synced. So the database must be what operations 1 to `count` make of an empty one, and
// `count` at least the last synced operation that was acknowledged.
//
// RECORD is a file to which a frame of 64 bytes is appended, as tests/attack/record.py reads them: S before operation
// `id` is submitted, A after it was acknowledged if it was synced.
//
// Exit status: 0; 2 wrong usage; 3 RocksDB reported an error; 4 the database holds something else.
//
// SPDX-License-Identifier: MIT OR Apache-2.0

#include <fcntl.h>
#include <rocksdb/convenience.h>
#include <rocksdb/db.h>
#include <rocksdb/env.h>
#include <rocksdb/write_batch.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <string>

namespace {

constexpr char kCount[] = "count";
constexpr uint64_t kKeys = 2000;

[[noreturn]] void Reported(const char *what, uint64_t id, const rocksdb::Status &s) {
  printf("%s %llu: %s\n", what, static_cast<unsigned long long>(id), s.ToString().c_str());
  fflush(stdout);
  _exit(3);
}

[[noreturn]] void Wrong(const std::string &what) {
  printf("wrong: %s\n", what.c_str());
  fflush(stdout);
  _exit(4);
}

// splitmix64
uint64_t Mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

std::string Key(uint64_t n) {
  char text[24];
  snprintf(text, sizeof text, "key%06llu", static_cast<unsigned long long>(n));
  return text;
}

// Some are short, some fill several blocks of a zone.
std::string Value(uint64_t draw) {
  size_t size = draw % 20 == 0 ? 9000 + draw % 30000 : 20 + draw % 700;
  std::string value(size, '\0');
  for (size_t at = 0; at < size; at += 8) {
    draw = Mix(draw);
    memcpy(&value[at], &draw, std::min<size_t>(8, size - at));
  }
  return value;
}

// Calls put(key, value) and remove(key) for what an operation does.
template <class Put, class Remove>
void Operation(uint64_t seed, uint64_t id, Put put, Remove remove) {
  uint64_t draw = Mix(seed * 0x100000001b3 + id);
  uint64_t parts = draw % 8 == 0 ? 6 : 1;
  for (uint64_t part = 0; part < parts; part++) {
    uint64_t d = Mix(draw + part);
    std::string key = Key(d % kKeys);
    if (d / kKeys % 4 == 0) {
      remove(key);
    } else {
      put(key, Value(Mix(d)));
    }
  }
  put(kCount, std::to_string(id));
}

class Record {
 public:
  explicit Record(const char *path) : fd_(open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600)) {
    if (fd_ < 0) perror(path), _exit(2);
  }
  void Frame(char kind, uint64_t id) {
    char frame[64] = {'Z', 'P', 'A', 'T', kind};
    memcpy(frame + 8, &id, sizeof id);
    if (write(fd_, frame, sizeof frame) != sizeof frame) perror("record"), _exit(2);
  }

 private:
  const int fd_;
};

// Small, so that files, compactions and logs come and go all the time.
rocksdb::Options Small(rocksdb::Env *env, bool create) {
  rocksdb::Options options;
  options.env = env;
  options.create_if_missing = create;
  options.write_buffer_size = 256 << 10;
  options.target_file_size_base = 256 << 10;
  options.max_bytes_for_level_base = 1 << 20;
  options.level0_file_num_compaction_trigger = 3;
  options.max_background_jobs = 2;
  options.compression = rocksdb::kNoCompression;
  return options;
}

uint64_t Count(rocksdb::DB *db) {
  std::string value;
  rocksdb::Status s = db->Get(rocksdb::ReadOptions(), kCount, &value);
  if (s.IsNotFound()) return 0;
  if (!s.ok()) Reported("get", 0, s);
  return strtoull(value.c_str(), nullptr, 10);
}

void Write(rocksdb::DB *db, uint64_t seed, Record record, uint64_t end) {
  for (uint64_t id = Count(db) + 1; id <= end; id++) {
    rocksdb::WriteBatch batch;
    Operation(
        seed, id, [&](const std::string &k, const std::string &v) { batch.Put(k, v); },
        [&](const std::string &k) { batch.Delete(k); });
    rocksdb::WriteOptions how;
    how.sync = id % 3 != 0;
    record.Frame('S', id);
    rocksdb::Status s = db->Write(how, &batch);
    if (!s.ok()) Reported("write", id, s);
    if (how.sync) record.Frame('A', id);
    if (id % 400 == 0) {
      s = db->Flush(rocksdb::FlushOptions());
      if (!s.ok()) Reported("flush after", id, s);
    }
  }
}

void Verify(rocksdb::DB *db, uint64_t seed) {
  uint64_t count = Count(db);
  std::map<std::string, std::string> wanted;
  for (uint64_t id = 1; id <= count; id++) {
    Operation(
        seed, id, [&](const std::string &k, const std::string &v) { wanted[k] = v; },
        [&](const std::string &k) { wanted.erase(k); });
  }
  rocksdb::Status s = db->VerifyChecksum();
  if (!s.ok()) Reported("checksums", 0, s);
  auto next = wanted.begin();
  std::unique_ptr<rocksdb::Iterator> found(db->NewIterator(rocksdb::ReadOptions()));
  for (found->SeekToFirst(); found->Valid(); found->Next(), ++next) {
    std::string key = found->key().ToString();
    if (next == wanted.end() || next->first > key) Wrong(key + " is there, but not after " + std::to_string(count));
    if (next->first < key) Wrong(next->first + " is missing after " + std::to_string(count));
    if (found->value() != next->second) Wrong(key + " has another value after " + std::to_string(count));
  }
  if (!found->status().ok()) Reported("iterator", 0, found->status());
  if (next != wanted.end()) Wrong(next->first + " is missing after " + std::to_string(count));
  printf("%llu operations, %zu keys\n", static_cast<unsigned long long>(count), wanted.size());
}

}  // namespace

int main(int argc, char **argv) {
  bool writes = argc >= 6 && argc <= 7 && !strcmp(argv[1], "write");
  if (!writes && !(argc == 5 && !strcmp(argv[1], "verify"))) {
    fprintf(stderr, "usage: victim write URI DB SEED RECORD [COUNT] | verify URI DB SEED\n");
    return 2;
  }
  uint64_t seed = strtoull(argv[4], nullptr, 10);
  rocksdb::Env *env = rocksdb::Env::Default();
  std::shared_ptr<rocksdb::Env> guard;
  rocksdb::Status s = rocksdb::Env::CreateFromUri(rocksdb::ConfigOptions(), "", argv[2], &env, &guard);
  if (!s.ok()) Reported("env", 0, s);
  rocksdb::DB *db = nullptr;
  s = rocksdb::DB::Open(Small(env, writes), argv[3], &db);
  if (!writes && s.IsInvalidArgument() && s.ToString().find("create_if_missing") != std::string::npos) {
    puts("0 operations: there is no database");
    return 0;
  }
  if (!s.ok()) Reported("open", 0, s);
  if (writes) {
    Write(db, seed, Record(argv[5]), argc == 7 ? strtoull(argv[6], nullptr, 10) : UINT64_MAX);
  } else {
    Verify(db, seed);
  }
  s = db->Close();
  if (!s.ok()) Reported("close", 0, s);
  delete db;
  return 0;
}
