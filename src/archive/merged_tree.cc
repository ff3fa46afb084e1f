#include "archive/merged_tree.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "core/error.h"

namespace rubato::archive {

namespace {

constexpr size_t kMergeReadBytes = size_t{256} << 10;

using Kind = Files::Entry::Kind;

bool same_bytes(Files& files, const std::string& a, const std::string& b) {
  const auto left = files.open_read(a);
  const auto right = files.open_read(b);
  while (true) {
    const std::string one = left->read(kMergeReadBytes);
    if (one != right->read(kMergeReadBytes)) return false;
    if (one.empty()) return true;
  }
}

class Merger {
 public:
  Merger(Files& files, const std::vector<Layer>& layers) : files_(files), layers_(layers) {}

  MergedTree run() {
    std::vector<const Layer*> all;
    for (const Layer& layer : layers_) all.push_back(&layer);
    merge_folder("", all);
    const std::string others = free_name();
    for (const auto& [layer, path] : std::exchange(left_over_, {})) {
      ++tree_.conflicts;
      add_copy(*layer, path, others + "/" + layer->name + "/" + path);
    }
    return std::move(tree_);
  }

 private:
  struct Holder {
    const Layer* layer;
    Files::Entry entry;
  };

  std::vector<Files::Entry> list(const Layer& layer, const std::string& path) {
    const std::string folder = path.empty() ? layer.folder : layer.folder + "/" + path;
    try {
      return files_.list(folder);
    } catch (const Error& error) {
      if (error.code != ErrorCode::kNotFound) throw;
      return {};
    }
  }

  void merge_folder(const std::string& path, const std::vector<const Layer*>& layers) {
    std::map<std::string, std::vector<Holder>> names;
    for (const Layer* layer : layers) {
      for (Files::Entry& entry : list(*layer, path)) {
        const std::string inside = path.empty() ? entry.name : path + "/" + entry.name;
        if (!can_be_packed(inside, entry)) continue;
        const std::string name = entry.name;
        names[name].push_back(Holder{layer, std::move(entry)});
      }
    }
    if (path.empty()) {
      for (const auto& [name, holders] : names) top_.insert(name);
    }
    for (const auto& [name, holders] : names) {
      merge_name(path.empty() ? name : path + "/" + name, holders);
    }
  }

  void merge_name(const std::string& path, const std::vector<Holder>& holders) {
    const Holder& first = holders.front();
    add(path, first.entry, first.layer->folder + "/" + path);
    std::vector<const Layer*> inside;
    for (const Holder& holder : holders) {
      if (first.entry.kind == Kind::kFolder && holder.entry.kind == Kind::kFolder) {
        inside.push_back(holder.layer);
      } else if (&holder != &first && !same(path, first, holder)) {
        left_over_.emplace_back(holder.layer, path);
      }
    }
    if (!inside.empty()) merge_folder(path, inside);
  }

  bool same(const std::string& path, const Holder& a, const Holder& b) {
    if (a.entry.kind != b.entry.kind) return false;
    if (a.entry.kind == Kind::kLink) return a.entry.target == b.entry.target;
    return a.entry.size == b.entry.size &&
           same_bytes(files_, a.layer->folder + "/" + path, b.layer->folder + "/" + path);
  }

  static bool can_be_packed(const std::string& path, const Files::Entry& entry) {
    return entry.kind != Kind::kOther && !path_fault(path) &&
           (entry.kind != Kind::kLink || !link_fault(path, entry.target));
  }

  void add(const std::string& path, const Files::Entry& entry, const std::string& source) {
    MergedEntry merged;
    merged.entry.path = path;
    merged.entry.kind = entry.kind == Kind::kFolder ? TarEntry::Kind::kFolder
                        : entry.kind == Kind::kLink ? TarEntry::Kind::kLink
                                                    : TarEntry::Kind::kFile;
    merged.entry.size = entry.size;
    merged.entry.executable = entry.executable;
    merged.entry.target = entry.target;
    if (entry.kind == Kind::kFile) merged.source = source;
    tree_.entries.push_back(std::move(merged));
  }

  // What one layer has at a path, all of it, at another place.
  void add_copy(const Layer& layer, const std::string& path, const std::string& target) {
    const size_t slash = path.rfind('/');
    const std::string above = slash == std::string::npos ? "" : path.substr(0, slash);
    const std::string name = slash == std::string::npos ? path : path.substr(slash + 1);
    for (const Files::Entry& entry : list(layer, above)) {
      if (entry.name != name || !can_be_packed(target, entry)) continue;
      add(target, entry, layer.folder + "/" + path);
      if (entry.kind != Kind::kFolder) continue;
      for (const Files::Entry& inner : list(layer, path))
        add_copy(layer, path + "/" + inner.name, target + "/" + inner.name);
    }
  }

  std::string free_name() const {
    std::string name = kOthers;
    for (int number = 2; top_.contains(name); ++number) name = fmt::format("{}-{}", kOthers, number);
    return name;
  }

  Files& files_;
  const std::vector<Layer>& layers_;
  MergedTree tree_;
  std::set<std::string> top_;  // names in the root
  std::vector<std::pair<const Layer*, std::string>> left_over_;
};

}  // namespace

MergedTree merge(Files& files, const std::vector<Layer>& layers) { return Merger(files, layers).run(); }

std::optional<std::string> MergedTar::next() {
  return chunks_.next([this] { return next_piece(); });
}

std::optional<std::string> MergedTar::next_piece() {
  if (body_ && !body_->ended()) return body_->next();
  while (at_ < tree_.entries.size()) {
    MergedEntry& merged = tree_.entries[at_++];
    if (merged.entry.kind != TarEntry::Kind::kFile) return tar_header(merged.entry);
    try {
      body_.emplace(files_.open_read(merged.source), merged.entry.path);
    } catch (const Error& error) {
      if (error.code != ErrorCode::kNotFound) throw;
      continue;  // gone since it was listed
    }
    merged.entry.size = body_->size();
    merged.entry.executable = body_->executable();
    return tar_header(merged.entry);
  }
  if (std::exchange(ended_, true)) return std::nullopt;
  return tar_end();
}

}  // namespace rubato::archive
