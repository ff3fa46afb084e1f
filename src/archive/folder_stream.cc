#include "archive/folder_stream.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/error.h"

namespace rubato::archive {

namespace {

constexpr size_t kCopyBytes = size_t{256} << 10;

std::string without_slash(std::string path) {
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  return path;
}

}  // namespace

FolderTar::FolderTar(Files& files, std::string folder, const TreeOptions& options, const TarLimits& limits)
    : tar_(files, std::move(folder), options, limits) {}

std::optional<std::string> FolderTar::next() {
  return chunks_.next([this] { return tar_.next(); });
}

std::string make_draft(Files& files, const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash != std::string::npos && slash > 0) files.make_folders(path.substr(0, slash));
  return files.make_temporary_folder(path + kDraftMark);
}

void FolderSink::begin(const TarEntry& entry) {
  path_ = folder_ + "/" + entry.path;
  executable_ = entry.executable;
  const std::string parent = entry.kind == TarEntry::Kind::kFolder ? path_ : path_.substr(0, path_.rfind('/'));
  if (parent != parent_) files_.make_folders(parent_ = parent);
  if (entry.kind == TarEntry::Kind::kFolder) return;
  if (entry.replaces) files_.remove_tree(path_);
  if (entry.kind == TarEntry::Kind::kLink) return files_.make_link(entry.target, path_);
  file_ = files_.open_append(path_);
  if (entry.kind != TarEntry::Kind::kCopy) return;
  const auto source = files_.open_read(folder_ + "/" + entry.target);
  executable_ = source->executable();
  for (std::string piece = source->read(kCopyBytes); !piece.empty(); piece = source->read(kCopyBytes)) {
    file_->append(piece);
  }
  end();
}

void FolderSink::data(std::string_view bytes) { file_->append(bytes); }

void FolderSink::end() {
  file_.reset();
  if (executable_) files_.set_mode(path_, 0755);
}

FolderUntar::FolderUntar(Files& files, std::string target, const TarLimits& limits)
    : files_(files),
      target_(without_slash(std::move(target))),
      draft_(make_draft(files, target_)),
      sink_(files, draft_),
      reader_(target_, limits, sink_),
      decoder_(make_zstd_decoder(target_)) {}

FolderUntar::~FolderUntar() {
  if (!draft_.empty()) files_.remove_tree(draft_);
}

void FolderUntar::feed(std::string_view bytes) {
  decoder_->decode(bytes, [this](std::string_view piece) { reader_.feed(piece); });
}

void FolderUntar::finish() {
  decoder_->finish();
  reader_.finish();
  if (files_.exists(target_)) {
    merge(draft_, target_);
    files_.remove_tree(draft_);
  } else {
    files_.set_mode(draft_, 0755);
    files_.rename(draft_, target_);
  }
  draft_.clear();
}

void FolderUntar::merge(const std::string& from, const std::string& to) {
  const std::vector<Files::Entry> there = files_.list(to);
  for (const Files::Entry& entry : files_.list(from)) {
    const std::string source = from + "/" + entry.name;
    const std::string goal = to + "/" + entry.name;
    const auto other = std::ranges::lower_bound(there, entry.name, {}, &Files::Entry::name);
    const bool taken = other != there.end() && other->name == entry.name;
    const bool is_folder = entry.kind == Files::Entry::Kind::kFolder;
    if (taken && is_folder != (other->kind == Files::Entry::Kind::kFolder)) {
      throw Error(ErrorCode::kConflict,
                  fmt::format("'{}' is a {} here and a {} there", goal, is_folder ? "file" : "folder",
                              is_folder ? "folder" : "file"),
                  goal, "choose another folder, or move it away");
    }
    if (taken && is_folder) {
      merge(source, goal);
    } else {
      files_.rename(source, goal);
    }
  }
}

}  // namespace rubato::archive
