#include "daemon/object_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "aws/credentials.h"
#include "aws/s3_transfer.h"
#include "gcp/gcs_transfer.h"
#include "terminal/layout.h"

namespace rubato::cli {

namespace fs = std::filesystem;

namespace {

using rest::Progress;
using rest::TransferReport;
using rest::TransferRules;

class S3Store final : public ObjectStore {
 public:
  S3Store(std::unique_ptr<aws::Client> client, std::string bucket)
      : client_(std::move(client)), bucket_(std::move(bucket)) {}

  std::string address(const std::string& key) const override { return to_string(at(key)); }
  Task<std::vector<ObjectEntry>> list(std::string prefix, size_t most) override {
    const std::vector<aws::S3Object> objects = co_await aws::list_objects(*client_, at(prefix), most);
    std::vector<ObjectEntry> out;
    for (const aws::S3Object& one : objects) out.push_back({one.key, one.size, one.etag});
    co_return out;
  }
  Task<TransferReport> upload(std::string path, std::string key, TransferRules rules, Progress progress) override {
    return aws::upload(*client_, std::move(path), at(key), rules, std::move(progress));
  }
  Task<TransferReport> download(std::string key, std::string path, TransferRules rules, Progress progress) override {
    return aws::download(*client_, at(key), std::move(path), rules, std::move(progress));
  }
  Task<TransferReport> copy(ObjectAddress from, std::string key, Progress progress) override {
    aws::S3Address source{std::move(from.bucket), std::move(from.key)};
    return aws::copy(*client_, std::move(source), at(key), std::move(progress), aws::CopyRules());
  }
  Task<void> remove(std::string key) override { return aws::delete_object(*client_, at(key)); }

 private:
  aws::S3Address at(const std::string& key) const { return {bucket_, key}; }
  const std::unique_ptr<aws::Client> client_;
  const std::string bucket_;
};

class GcsStore final : public ObjectStore {
 public:
  GcsStore(std::unique_ptr<gcp::Client> client, std::string bucket)
      : client_(std::move(client)), bucket_(std::move(bucket)) {}

  std::string address(const std::string& key) const override { return to_string(at(key)); }
  Task<std::vector<ObjectEntry>> list(std::string prefix, size_t most) override {
    const std::vector<gcp::GcsObject> objects = co_await gcp::list_objects(*client_, at(prefix), most);
    std::vector<ObjectEntry> out;
    for (const gcp::GcsObject& one : objects) out.push_back({one.key, one.size, one.generation});
    co_return out;
  }
  Task<TransferReport> upload(std::string path, std::string key, TransferRules rules, Progress progress) override {
    return gcp::upload(*client_, std::move(path), at(key), rules, std::move(progress));
  }
  Task<TransferReport> download(std::string key, std::string path, TransferRules rules, Progress progress) override {
    return gcp::download(*client_, at(key), std::move(path), rules, std::move(progress));
  }
  Task<TransferReport> copy(ObjectAddress from, std::string key, Progress progress) override {
    gcp::GcsAddress source{std::move(from.bucket), std::move(from.key)};
    return gcp::copy(*client_, std::move(source), at(key), std::move(progress));
  }
  Task<void> remove(std::string key) override { return gcp::delete_object(*client_, at(key)); }

 private:
  gcp::GcsAddress at(const std::string& key) const { return {bucket_, key}; }
  const std::unique_ptr<gcp::Client> client_;
  const std::string bucket_;
};

// "a" beside "a//" or "a/b": no two objects are one file, and a file is no folder too.
void refuse_same_places(const std::vector<ObjectFile>& files) {
  std::vector<const ObjectFile*> sorted;
  sorted.reserve(files.size());
  for (const ObjectFile& one : files) sorted.push_back(&one);
  const auto path_of = [](const ObjectFile* one) -> const std::string& { return one->path; };
  std::ranges::sort(sorted, {}, path_of);
  for (size_t i = 0; i < sorted.size(); ++i) {
    const ObjectFile* other = i + 1 < sorted.size() && sorted[i + 1]->path == sorted[i]->path ? sorted[i + 1] : nullptr;
    const std::string folder = sorted[i]->path + "/";
    const auto inside = std::ranges::lower_bound(sorted, folder, {}, path_of);
    if (inside != sorted.end() && (*inside)->path.starts_with(folder)) other = *inside;
    if (other == nullptr) continue;
    throw Error(ErrorCode::kUsage,
                fmt::format("'{}' and '{}' cannot both be files here", clean(sorted[i]->key), clean(other->key)), "",
                "copy such objects one by one, each to a path of its own");
  }
}

}  // namespace

bool is_object_address(const std::string& text) { return aws::is_s3_address(text) || gcp::is_gcs_address(text); }

ObjectAddress parse_object_address(const std::string& text) {
  if (gcp::is_gcs_address(text)) {
    gcp::GcsAddress found = gcp::parse_gcs_address(text);
    return {true, std::move(found.bucket), std::move(found.key)};
  }
  aws::S3Address found = aws::parse_s3_address(text);
  return {false, std::move(found.bucket), std::move(found.key)};
}

std::string to_string(const ObjectAddress& address) {
  return fmt::format("{}://{}/{}", address.in_gcs ? "gs" : "s3", address.bucket, address.key);
}

std::optional<std::string> path_below(const ObjectAddress& address, const std::string& key, const std::string& folder) {
  const fs::path root = fs::path(folder).lexically_normal();
  std::string name = key.substr(std::min(address.key.size(), key.size()));
  while (name.starts_with('/')) name.erase(0, 1);
  if (name.empty() || name.ends_with('/')) return std::nullopt;
  const fs::path path = (root / name).lexically_normal();
  // A key may hold "../": nobody's bucket writes outside of the folder that was named.
  if (path.lexically_relative(root).string().starts_with("..")) {
    throw Error(ErrorCode::kFailed, fmt::format("the key '{}' leads out of the folder", clean(key)), folder,
                "copy such objects one by one");
  }
  return path.string();
}

Task<std::vector<ObjectFile>> find_below(ObjectStore& store, ObjectAddress address, std::string folder, size_t most) {
  const std::string from = store.address(address.key);
  const std::vector<ObjectEntry> entries = co_await store.list(address.key, most + 1);
  if (entries.size() > most) {
    throw Error(ErrorCode::kUsage, fmt::format("more than {} files", most), from, "copy it part by part");
  }
  std::vector<ObjectFile> out;
  for (const ObjectEntry& entry : entries) {
    const std::optional<std::string> path = path_below(address, entry.key, folder);
    if (!path) continue;
    ObjectFile file;
    file.key = entry.key;
    file.path = *path;
    file.size = entry.size;
    file.version = entry.version;
    out.push_back(std::move(file));
  }
  refuse_same_places(out);
  if (out.empty()) {
    throw Error(ErrorCode::kNotFound, fmt::format("nothing begins with {}", from), "",
                "check the bucket and the prefix");
  }
  co_return out;
}

std::string transfer_state(const rest::Environment& env) {
  const std::string state = rest::variable(env, "XDG_STATE_HOME");
  return (state.starts_with('/') ? state : rest::home_of(env) + "/.local/state") + "/rubato/transfers";
}

Task<std::unique_ptr<ObjectStore>> open_store(World& world, ObjectAddress address, aws::Settings settings) {
  std::unique_ptr<ObjectStore> out;
  if (address.in_gcs) {
    gcp::Settings of_google;
    of_google.env = settings.env;
    const std::string project = gcp::variable(settings.env, "GOOGLE_CLOUD_PROJECT");
    out = std::make_unique<GcsStore>(gcp::open_client(world, project, std::move(of_google)), address.bucket);
  } else {
    std::unique_ptr<aws::Client> client = co_await aws::open_client(world, std::move(settings));
    out = std::make_unique<S3Store>(std::move(client), address.bucket);
  }
  co_return out;
}

}  // namespace rubato::cli
