#include "agent/notice_file.h"

#include <algorithm>
#include <utility>

namespace rubato::agent {

std::optional<Notice> read_notice_file(World& world, const std::string& path) {
  const std::optional<std::string> text = world.files.read(path);
  if (!text) {
    if (!world.files.exists(path)) return std::nullopt;
    return Notice{std::nullopt, "it cannot be read"};
  }
  // A file from another machine may have its clock.
  const WallTime now = world.clock.wall();
  return parse_notice(*text, std::min(world.files.modified(path).value_or(now), now));
}

std::optional<Notice> NoticeFile::find() {
  std::optional<Notice> notice = read_notice_file(world_, path_);
  if (notice && !notice->deadline && !std::exchange(seen_, true)) return std::nullopt;
  return notice;
}

}  // namespace rubato::agent
