#include "archive/tar.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "core/error.h"
#include "core/text.h"

namespace rubato::archive {

namespace {

constexpr size_t kNameMax = 100, kPrefixMax = 155;           // of the header's fields
constexpr size_t kPathMax = 4095, kPartMax = 255;            // what Linux can open
constexpr uint64_t kOctalSizeMax = (uint64_t{1} << 33) - 1;  // eleven octal digits

struct HeaderFields {
  std::string name, prefix, target;
  uint64_t size = 0;
  unsigned mode = 0644;
  char type = '0';
};

// Offsets of POSIX.1-1988: name 0, mode 100, uid 108, gid 116, size 124, mtime 136, sum 148, type 156, link 157,
// magic 257, device numbers 329 and 337, prefix 345.
std::string header_block(const HeaderFields& fields) {
  std::string block(kTarBlock, '\0');
  const auto put = [&block](size_t at, std::string_view text) { std::memcpy(&block[at], text.data(), text.size()); };
  put(0, fields.name);
  put(100, fmt::format("{:07o}", fields.mode));
  put(108, "0000000");
  put(116, "0000000");
  put(124, fmt::format("{:011o}", fields.size));
  put(136, "00000000000");
  put(148, "        ");
  block[156] = fields.type;
  put(157, fields.target);
  put(257, std::string_view("ustar\00000", 8));
  put(329, "0000000");
  put(337, "0000000");
  put(345, fields.prefix);
  unsigned sum = 0;
  for (const char c : block) sum += static_cast<unsigned char>(c);
  put(148, fmt::format("{:06o}", sum));
  block[154] = '\0';
  return block;
}

// "LENGTH key=value\n", where LENGTH counts its own digits.
std::string pax_record(std::string_view key, std::string_view value) {
  const size_t rest = key.size() + value.size() + 3;
  size_t length = rest + 1;
  while (rest + fmt::formatted_size("{}", length) != length) length = rest + fmt::formatted_size("{}", length);
  return fmt::format("{} {}={}\n", length, key, value);
}

// Puts the path into name and prefix; false when it does not fit.
bool split_path(const std::string& path, HeaderFields& fields) {
  if (path.size() <= kNameMax) {
    fields.name = path;
    return true;
  }
  // The first slash that leaves a short enough name gives the shortest prefix.
  const size_t slash = path.find('/', path.size() - kNameMax - 1);
  if (slash == std::string::npos || slash > kPrefixMax || slash + 1 == path.size()) return false;
  fields.prefix = path.substr(0, slash);
  fields.name = path.substr(slash + 1);
  return true;
}

}  // namespace

std::string_view to_string(TarEntry::Kind kind) {
  switch (kind) {
    case TarEntry::Kind::kFile:
      return "file";
    case TarEntry::Kind::kFolder:
      return "folder";
    case TarEntry::Kind::kLink:
      return "link";
    case TarEntry::Kind::kCopy:
      return "hard link";
  }
  return "?";
}

std::string tar_header(const TarEntry& entry) {
  CHECK(entry.kind != TarEntry::Kind::kCopy);  // we write none
  HeaderFields fields;
  std::string records;
  const std::string path = entry.path + (entry.kind == TarEntry::Kind::kFolder ? "/" : "");
  if (!split_path(path, fields)) {
    records += pax_record("path", path);
    fields.name = path.substr(0, kNameMax);
  }
  if (entry.kind == TarEntry::Kind::kFile) {
    fields.size = entry.size;
    if (entry.size > kOctalSizeMax) {
      records += pax_record("size", fmt::format("{}", entry.size));
      fields.size = 0;
    }
  }
  if (entry.kind == TarEntry::Kind::kLink) {
    fields.type = '2';
    fields.target = entry.target.substr(0, kNameMax);
    if (entry.target.size() > kNameMax) records += pax_record("linkpath", entry.target);
  }
  if (entry.kind == TarEntry::Kind::kFolder) fields.type = '5';
  if (entry.executable || entry.kind == TarEntry::Kind::kFolder) fields.mode = 0755;
  if (records.empty()) return header_block(fields);
  HeaderFields extended;
  extended.name = "PaxHeaders/" + entry.path.substr(entry.path.rfind('/') + 1).substr(0, 80);
  extended.type = 'x';
  extended.size = records.size();
  return header_block(extended) + records + tar_padding(records.size()) + header_block(fields);
}

std::string tar_padding(uint64_t size) { return std::string((kTarBlock - size % kTarBlock) % kTarBlock, '\0'); }

std::string tar_end() { return std::string(2 * kTarBlock, '\0'); }

std::optional<std::string> path_fault(std::string_view path) {
  if (path.empty()) return "its name is empty";
  if (path.starts_with('/')) return "its path is absolute";
  if (path.size() > kPathMax) return fmt::format("its path has {} bytes, at most {}", path.size(), kPathMax);
  if (std::ranges::any_of(path, [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; })) {
    return "its name has a control character";
  }
  for (const std::string_view part : split(path, '/')) {
    if (part == "..") return "its path has '..'";
    if (part.empty() || part == ".") return "its path has an empty part";
    if (part.size() > kPartMax)
      return fmt::format("a part of its path has {} bytes, at most {}", part.size(), kPartMax);
  }
  return std::nullopt;
}

std::optional<std::string> link_fault(std::string_view path, std::string_view target) {
  if (target.empty()) return "it points to nothing";
  if (target.starts_with('/')) return "it points outside of the folder: its target is absolute";
  if (target.size() > kPathMax) return fmt::format("its target has {} bytes, at most {}", target.size(), kPathMax);
  if (std::ranges::any_of(target, [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; })) {
    return "its target has a control character";
  }
  auto depth = std::ranges::count(path, '/');
  bool down = false;
  for (const std::string_view part : split(target, '/')) {
    if (part.empty() || part == ".") continue;
    if (part != "..") {
      down = true;
    } else if (down) {
      return "its target has '..' after a name";
    } else if (--depth < 0) {
      return "it points outside of the folder";
    }
  }
  return std::nullopt;
}

}  // namespace rubato::archive
