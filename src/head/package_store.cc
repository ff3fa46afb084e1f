#include "head/package_store.h"

#include <fmt/format.h>

#include "core/error.h"
#include "core/sha256.h"

namespace rubato::head {

namespace {

constexpr size_t kReadBlock = size_t{1} << 20;

uint64_t size_of(Files& files, const std::string& folder, const std::string& name) {
  try {
    return files.open_read(folder + "/" + name)->size();
  } catch (const Error&) {
    return 0;
  }
}

std::string hash_of(Files& files, const std::string& path, uint64_t size) {
  Sha256 hasher;
  for (uint64_t at = 0; at < size;) {
    const std::string block = files.read_range(path, at, kReadBlock);
    if (block.empty()) break;
    hasher.update(block);
    at += block.size();
  }
  return hasher.hex();
}

}  // namespace

std::string PackageStore::path(const std::string& hash) const {
  // It becomes a file's name.
  if (!is_sha256_hex(hash)) throw Error(ErrorCode::kUsage, "not the hash of a package: 64 hexadecimal digits are");
  return folder_ + "/" + hash + ".tar.zst";
}

PackageStore::Progress PackageStore::progress(const std::string& hash) const {
  const std::string whole = path(hash);
  if (files_.exists(whole)) return {size_of(files_, folder_, hash + ".tar.zst"), true};
  return {size_of(files_, folder_, hash + ".tar.zst.part"), false};
}

Task<PackageStore::Progress> PackageStore::put(std::string hash, uint64_t offset, uint64_t size, std::string bytes) {
  const std::string part = path(hash) + ".part";
  co_await checks_.idle(hash);
  Progress progress = this->progress(hash);
  if (progress.complete) co_return progress;
  if (size > kPackageSizeMax)
    throw Error(ErrorCode::kUsage, "the package is larger than 2 GiB", "", "leave out data with a .rubatoignore file");
  if (offset > progress.have || offset + bytes.size() > size) {
    throw Error(ErrorCode::kConflict,
                fmt::format("this part does not follow the {} bytes that are here", progress.have));
  }
  files_.make_folders(folder_);
  const uint64_t skip = progress.have - offset;
  if (skip < bytes.size()) {
    files_.open_append(part)->append(std::string_view(bytes).substr(skip));
    progress.have = offset + bytes.size();
  }
  if (progress.have < size) co_return progress;
  co_await check(std::move(hash), size);
  progress.complete = true;
  co_return progress;
}

Task<void> PackageStore::check(std::string hash, uint64_t size) {
  const auto right = std::make_shared<bool>(false);
  std::function<void()> work = [&files = files_, whole = path(hash), hash, size, right] {
    const std::string part = whole + ".part";
    *right = hash_of(files, part, size) == hash;
    if (*right) files.rename(part, whole);
    if (!*right) files.remove_tree(part);
  };
  std::function<void()> after = [] {};
  co_await checks_.run(hash, std::move(work), std::move(after));
  if (*right) co_return;
  throw Error(ErrorCode::kUsage, "the package's bytes do not match its hash: it was damaged on the way", "",
              "submit again");
}

uint64_t PackageStore::size(const std::string& hash) const {
  path(hash);
  return size_of(files_, folder_, hash + ".tar.zst");
}

std::string PackageStore::read(const std::string& hash, uint64_t offset, size_t size_max) const {
  return files_.read_range(path(hash), offset, size_max);
}

}  // namespace rubato::head
