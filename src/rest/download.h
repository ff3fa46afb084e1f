// Whole objects of a store into files: several ranges at a time, checked, and continued where an earlier try ended.
//
// Memory: a few ranges, whatever the size of the file. A download goes to FILE.rubato-part and gets its name when it is
// whole and right; FILE.rubato-part.json says of which object it is.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "world/world.h"

namespace rubato::rest {

struct TransferRules {
  uint64_t part_size = uint64_t{8} << 20;
  int parallel = 4;
  std::string state;  // folder for uploads that were begun; empty: they are not continued
};

struct TransferReport {
  uint64_t bytes = 0;
  uint64_t resumed = 0;       // of these, what an earlier try had done
  std::string_view verified;  // "SHA-256", "MD5", "CRC32C", "length"
};

// Called with the bytes done so far and the bytes in all.
using Progress = std::function<void(uint64_t done, uint64_t total)>;

// One object of a store, and what is known of its bytes.
class ObjectReader {
 public:
  virtual ~ObjectReader() = default;
  struct Version {
    std::string id;  // another one when the object is replaced
    uint64_t size = 0;
  };
  virtual std::string name() const = 0;  // "s3://bucket/key"
  // As it is now, for all calls below; throws kNotFound, with the fix, when there is none.
  virtual Task<Version> open() = 0;
  // Of that version; kConflict when it was replaced meanwhile.
  virtual Task<std::string> read(uint64_t offset, uint64_t size) = 0;
  // The bytes that came, in order, from the first.
  virtual void check(std::string_view bytes) = 0;
  // After all of them: nullopt when they are right, or there is nothing to compare them with. Else both values.
  virtual std::optional<std::string> mismatch() = 0;
  virtual std::string_view checked_by() const = 0;
};

// Throws kFailed when what came is not what was put.
Task<TransferReport> download(World& world, ObjectReader& from, std::string path, TransferRules rules,
                              Progress progress);

// A server that knows no ranges sends all of it, with status 200: keeps what was asked for.
void cut_to_range(HttpResponse& response, uint64_t offset, uint64_t size);

// What both directions note beside a transfer; an empty object for what is none.
nlohmann::json read_transfer_note(Files& files, const std::string& path);
inline constexpr size_t kTransferReadAtOnce = size_t{1} << 20;
inline constexpr uint64_t kTransferMemory = uint64_t{48} << 20;

}  // namespace rubato::rest
