#include "petctl/script.h"

#include <fmt/format.h>

#include <filesystem>

#include "aws/s3.h"
#include "core/error.h"
#include "core/text.h"

namespace rubato::petctl {
namespace {

constexpr std::string_view kForms =
    "write SCRIPT, FOLDER SCRIPT, s3://BUCKET/SCRIPT, s3://BUCKET/DIR.tar.gz SCRIPT or --no_upload PATH, then -- ARGS";

bool is_archive(std::string_view name) {
  return name.ends_with(".tar") || name.ends_with(".tar.gz") || name.ends_with(".tgz") || name.ends_with(".tar.zst");
}

std::string checked_entry(const std::string& entry) {
  const std::filesystem::path path = std::filesystem::path(entry).lexically_normal();
  if (entry.empty() || path.is_absolute() || path.begin()->string() == "..") {
    throw Error(ErrorCode::kUsage, fmt::format("the script '{}' is not inside of its folder", entry), "",
                "give its path relative to the folder: FOLDER main.py");
  }
  return path.string();
}

}  // namespace

Script read_script(const std::vector<std::string>& positionals, bool no_upload, bool is_folder) {
  if (positionals.empty()) throw Error(ErrorCode::kUsage, "which script?", "", std::string(kForms));
  if (positionals.size() > 2) {
    throw Error(ErrorCode::kUsage, fmt::format("what is '{}'?", positionals[2]), "",
                fmt::format("arguments of the script come after --; {}", kForms));
  }
  Script out;
  out.source = positionals[0];
  const bool two = positionals.size() == 2;
  if (const auto inside = strip_prefix(out.source, "docker://")) {  // a later petctl's way to write --no_upload
    out.source = *inside;
    no_upload = true;
  }
  if (aws::is_s3_address(out.source)) {
    const aws::S3Address address = aws::parse_s3_address(out.source);
    if (address.key.empty()) throw Error(ErrorCode::kUsage, fmt::format("'{}' names no object", out.source));
    const bool archive = is_archive(address.key);
    if (archive != two) {
      throw Error(ErrorCode::kUsage,
                  archive ? fmt::format("which script of '{}'?", out.source)
                          : fmt::format("'{}' is a script, so what is '{}'?", out.source, positionals[1]),
                  "", std::string(kForms));
    }
    out.kind = archive ? Script::Kind::kS3Tar : Script::Kind::kS3File;
    if (archive) out.entry = checked_entry(positionals[1]);
    return out;
  }
  if (no_upload) {
    out.kind = Script::Kind::kOnHost;
    if (two) out.source = (std::filesystem::path(out.source) / checked_entry(positionals[1])).string();
    if (!out.source.starts_with('/')) {
      throw Error(ErrorCode::kUsage, fmt::format("'{}' is not an absolute path", out.source), "",
                  "with --no_upload the path is that of the container, or of the host without a docker_image");
    }
    return out;
  }
  if (is_folder != two) {
    throw Error(ErrorCode::kUsage,
                is_folder ? fmt::format("which script of the folder '{}'?", out.source)
                          : fmt::format("'{}' is no folder, so what is '{}'?", out.source, positionals[1]),
                "", std::string(kForms));
  }
  out.kind = is_folder ? Script::Kind::kFolder : Script::Kind::kFile;
  if (is_folder) out.entry = checked_entry(positionals[1]);
  return out;
}

std::string refusal_of(std::string_view text) {
  constexpr std::string_view kSigns[] = {"torchelastic.train_loop", "torchelastic.coordinator", "torchelastic.p2p",
                                         "torchelastic.checkpoint", "torchelastic.state"};
  for (const std::string_view sign : kSigns) {
    if (text.find(sign) != std::string_view::npos) return fmt::format("it imports {}", sign);
  }
  const bool imports = text.find("import torchelastic") != std::string_view::npos ||
                       text.find("from torchelastic import") != std::string_view::npos;
  if (imports && text.find("train_loop") != std::string_view::npos) return "it uses torchelastic's train_loop";
  return "";
}

}  // namespace rubato::petctl
