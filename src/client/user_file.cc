#include "client/user_file.h"

#include <fmt/format.h>

#include <filesystem>

#include "core/error.h"

namespace rubato::cli {
namespace {

std::string why_unreadable(const std::filesystem::path& path) {
  std::error_code error;
  const auto found = std::filesystem::status(path, error);
  if (std::filesystem::is_directory(found)) return "it is a folder";
  if (found.type() == std::filesystem::file_type::not_found) return "there is no such file";
  return error ? error.message() : "permission denied";
}

}  // namespace

std::string read_user_file(Files& files, std::string_view what, const std::string& path, const std::string& hint) {
  const std::filesystem::path absolute = std::filesystem::current_path() / path;  // an empty path is the folder here
  auto text = files.read(absolute.string());
  if (text) return std::move(*text);
  throw Error(ErrorCode::kUsage, fmt::format("{} '{}' cannot be read: {}", what, path, why_unreadable(absolute)), "",
              hint);
}

}  // namespace rubato::cli
