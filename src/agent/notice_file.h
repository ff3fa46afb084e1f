// NoticeFile: looks for a notice in a file, again and again.
#pragma once

#include <optional>
#include <string>

#include "agent/notice.h"
#include "world/world.h"

namespace rubato::agent {

// What is in the file now; nullopt: there is none.
std::optional<Notice> read_notice_file(World& world, const std::string& path);

class NoticeFile {
 public:
  // The world outlives it.
  NoticeFile(World& world, std::string path) : world_(world), path_(std::move(path)) {}

  // One without a time may be half written: it counts the second time.
  std::optional<Notice> find();

 private:
  World& world_;
  const std::string path_;
  bool seen_ = false;
};

}  // namespace rubato::agent
