// ObjectStore: a bucket of S3 or of Cloud Storage, as `rubato cp` uses it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "aws/settings.h"
#include "rest/download.h"

namespace rubato::cli {

struct ObjectEntry {
  std::string key;
  uint64_t size = 0;
  std::string version;  // another one when it is replaced; empty: the server does not say
};

struct ObjectAddress {
  bool in_gcs = false;  // gs://; else s3://
  std::string bucket, key;
  bool operator==(const ObjectAddress&) const = default;
};

class ObjectStore {
 public:
  virtual ~ObjectStore() = default;
  virtual std::string address(const std::string& key) const = 0;  // "s3://bucket/key"
  // At most `most` objects below a prefix, in the order of their keys.
  virtual Task<std::vector<ObjectEntry>> list(std::string prefix, size_t most) = 0;
  virtual Task<rest::TransferReport> upload(std::string path, std::string key, rest::TransferRules rules,
                                            rest::Progress progress) = 0;
  virtual Task<rest::TransferReport> download(std::string key, std::string path, rest::TransferRules rules,
                                              rest::Progress progress) = 0;
  // From a bucket of the same cloud, which does it.
  virtual Task<rest::TransferReport> copy(ObjectAddress from, std::string key, rest::Progress progress) = 0;
  virtual Task<void> remove(std::string key) = 0;  // what is not there is none the less removed
};

std::string to_string(const ObjectAddress& address);
bool is_object_address(const std::string& text);
ObjectAddress parse_object_address(const std::string& text);  // throws a usage Error

struct ObjectFile {
  std::string key, path;
  uint64_t size = 0;
  std::string version;
};
// What begins with the address' key, and where it goes below `folder`. Throws when there is nothing, more than `most`,
// or a key that leads out of the folder.
Task<std::vector<ObjectFile>> find_below(ObjectStore& store, ObjectAddress address, std::string folder, size_t most);

// Where an object goes below a folder; nullopt: it is a console's folder, which is an empty object. Throws for a key
// that leads out of the folder.
std::optional<std::string> path_below(const ObjectAddress& address, const std::string& key, const std::string& folder);

// Where transfers that were cut off are remembered.
std::string transfer_state(const rest::Environment& env);

// Credentials as each cloud's own tools find them; `settings` of AWS has the variables for both.
Task<std::unique_ptr<ObjectStore>> open_store(World& world, ObjectAddress address, aws::Settings settings);

}  // namespace rubato::cli
