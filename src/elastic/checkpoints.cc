#include "elastic/checkpoints.h"

#include <algorithm>
#include <set>
#include <tuple>

#include "core/sha256.h"

namespace rubato::elastic {

namespace {

constexpr size_t kComponentMax = 200;  // a copy beside it needs a longer name

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Strict enough for JSON: no overlong forms, no surrogates.
bool is_printable_utf8(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const auto lead = static_cast<unsigned char>(text[i]);
    if (lead < 0x20 || lead == 0x7f) return false;
    const size_t length = lead < 0x80                   ? 1
                          : lead >= 0xc2 && lead < 0xe0 ? 2
                          : lead >= 0xe0 && lead < 0xf0 ? 3
                          : lead >= 0xf0 && lead < 0xf5 ? 4
                                                        : 0;
    if (length == 0 || i + length > text.size()) return false;
    for (size_t k = 1; k < length; ++k) {
      if ((static_cast<unsigned char>(text[i + k]) & 0xc0) != 0x80) return false;
    }
    const auto second = length > 1 ? static_cast<unsigned char>(text[i + 1]) : 0;
    if ((lead == 0xe0 && second < 0xa0) || (lead == 0xed && second > 0x9f) || (lead == 0xf0 && second < 0x90) ||
        (lead == 0xf4 && second > 0x8f)) {
      return false;
    }
    i += length;
  }
  return true;
}

bool is_component(std::string_view name) {
  if (name.empty() || name.size() > kComponentMax || name.find('/') != std::string_view::npos) return false;
  if (name.front() == '.' || name.front() == '_' || name.ends_with('~') || name.ends_with(".tmp")) return false;
  return is_printable_utf8(name);
}

// The name without its n-th number, for each n.
std::vector<std::string> series_of(const std::string& name) {
  std::vector<std::string> series;
  for (size_t i = 0; i < name.size();) {
    if (!is_digit(name[i])) {
      ++i;
      continue;
    }
    size_t end = i;
    while (end < name.size() && is_digit(name[end])) ++end;
    // '/' is in no name but before the first component, so this is nobody's own name.
    series.push_back(name.substr(0, i) + "//" + name.substr(end));
    i = end;
  }
  return series;
}

}  // namespace

bool is_checkpoint_name(std::string_view name) {
  const std::string folder = std::string(kAdaptdlFolder) + "/";
  if (name.starts_with(folder)) return is_component(name.substr(folder.size()));
  return is_component(name) && name != kAdaptdlFolder;
}

bool is_newer(const CheckpointItem& a, const CheckpointItem& b) {
  return std::tie(a.generation, a.saved_us, a.sequence) > std::tie(b.generation, b.saved_us, b.sequence);
}

std::vector<CheckpointItem> retained(std::vector<CheckpointItem> items, const CheckpointLimits& limits) {
  std::ranges::stable_sort(items, is_newer);
  std::vector<CheckpointItem> kept;
  std::set<std::string> names;
  std::map<std::string, size_t> newer;  // of each series
  uint64_t bytes = 0;
  for (CheckpointItem& item : items) {
    if (!names.insert(item.name).second) continue;
    const std::vector<std::string> series = series_of(item.name);
    const bool outlived =
        !series.empty() && std::ranges::all_of(series, [&](const auto& one) { return newer[one] >= limits.keep; });
    for (const std::string& one : series) ++newer[one];
    if (outlived || kept.size() >= kCheckpointItemsMax) continue;
    // An older small one does not stay in the place of a newer large one.
    const bool fits = item.packed_bytes <= limits.bytes_max && bytes <= limits.bytes_max - item.packed_bytes;
    if (!kept.empty() && !fits) break;
    bytes += item.packed_bytes;
    kept.push_back(std::move(item));
    if (!fits) break;
  }
  return kept;
}

std::vector<CheckpointItem> missing_items(const std::vector<CheckpointItem>& kept, const CheckpointLedger& here,
                                          Generation generation) {
  std::vector<CheckpointItem> missing;
  for (const CheckpointItem& item : kept) {
    if (item.generation >= generation) continue;
    const auto mine = here.find(item.name);
    if (mine != here.end()) {
      if (mine->second.hash == item.hash) continue;
      if (mine->second.hash.empty() && mine->second.generation >= item.generation) continue;
    }
    missing.push_back(item);
  }
  return missing;
}

std::vector<NodeId> choose_peers(const JobId& job, std::vector<PeerCandidate> candidates, size_t count) {
  // Highest random weight: each node draws its own lot for this job.
  using Lot = std::tuple<bool, bool, std::string, NodeId>;
  std::vector<Lot> lots;
  for (PeerCandidate& one : candidates) {
    Sha256 hash;
    hash.update(job.value + "/" + one.node.value);
    lots.emplace_back(one.on_head_machine, one.works_on_it, hash.hex(), std::move(one.node));
  }
  std::ranges::sort(lots);
  std::vector<NodeId> peers;
  for (Lot& lot : lots) {
    if (peers.size() < count) peers.push_back(std::move(std::get<3>(lot)));
  }
  return peers;
}

}  // namespace rubato::elastic
