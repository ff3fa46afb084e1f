#include "elastic/checkpoints_json.h"

#include <algorithm>

#include "elastic/wire_json.h"

namespace rubato::elastic {

using nlohmann::json;
using namespace wire;

namespace {

constexpr size_t kNodeNameMax = 256;
constexpr size_t kLedgerMax = 65536;  // names of one job on one node

// Empty, where that is allowed, or 64 hexadecimal digits: it becomes a file's name.
std::string read_hash(const json& j, const char* key) {
  auto text = j.at(key).get<std::string>();
  const auto digit = [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); };
  if (!text.empty() && (text.size() != 64 || !std::ranges::all_of(text, digit))) not_ours("a hash that is none");
  return text;
}

std::string read_name(std::string name) {
  if (!is_checkpoint_name(name)) not_ours("a checkpoint of a name that is not allowed");
  return name;
}

template <class F>
auto parse_file(std::string_view text, F read) {
  try {
    return read(json::parse(text));
  } catch (const json::exception& error) {
    throw Error(ErrorCode::kFailed, error.what());
  }
}

}  // namespace

json to_json(const CheckpointItem& item) {
  return {{"name", item.name},         {"hash", item.hash},         {"packed_bytes", item.packed_bytes},
          {"bytes", item.bytes},       {"files", item.files},       {"generation", item.generation},
          {"sequence", item.sequence}, {"saved_us", item.saved_us}, {"node", item.node.value}};
}

json to_json(const std::vector<CheckpointItem>& items) {
  json list = json::array();
  for (const CheckpointItem& item : items) list.push_back(to_json(item));
  return list;
}

CheckpointItem checkpoint_item_from_json(const json& j) {
  CheckpointItem item;
  item.name = read_name(j.at("name").get<std::string>());
  item.hash = read_hash(j, "hash");
  item.packed_bytes = number<uint64_t>(j, "packed_bytes");
  item.bytes = number<uint64_t>(j, "bytes");
  item.files = number<uint64_t>(j, "files");
  item.generation = number<uint64_t>(j, "generation");
  item.sequence = number<uint64_t>(j, "sequence");
  item.saved_us = number<int64_t>(j, "saved_us");
  item.node.value = cut_text(j, "node", kNodeNameMax);
  return item;
}

std::vector<CheckpointItem> checkpoint_items_from_json(const json& list) {
  if (!list.is_array() || list.size() > kCheckpointItemsMax) not_ours("more checkpoints than a job can have");
  std::vector<CheckpointItem> items;
  for (const json& one : list) items.push_back(checkpoint_item_from_json(one));
  return items;
}

std::string index_text(const std::vector<CheckpointItem>& items) {
  return json{{"version", 1}, {"items", to_json(items)}}.dump(1) + "\n";
}

std::vector<CheckpointItem> index_from_text(std::string_view text) {
  return parse_file(text, [](const json& j) {
    std::vector<CheckpointItem> items = checkpoint_items_from_json(j.at("items"));
    const auto is_nameless = [](const CheckpointItem& one) { return one.hash.empty(); };
    if (std::ranges::any_of(items, is_nameless)) not_ours("an item without a hash");
    return items;
  });
}

std::string ledger_text(const CheckpointLedger& ledger) {
  json entries = json::object();
  for (const auto& [name, entry] : ledger) {
    entries[name] = {{"hash", entry.hash}, {"generation", entry.generation}, {"saved_us", entry.saved_us}};
  }
  return json{{"version", 1}, {"entries", std::move(entries)}}.dump(1) + "\n";
}

CheckpointLedger ledger_from_text(std::string_view text) {
  return parse_file(text, [](const json& j) {
    CheckpointLedger ledger;
    const json& entries = j.at("entries");
    if (!entries.is_object() || entries.size() > kLedgerMax) not_ours("more checkpoints than a node can have");
    for (const auto& [name, value] : entries.items()) {
      CheckpointEntry entry;
      entry.hash = read_hash(value, "hash");
      entry.generation = number<uint64_t>(value, "generation");
      entry.saved_us = number<int64_t>(value, "saved_us");
      ledger[read_name(name)] = std::move(entry);
    }
    return ledger;
  });
}

std::string copy_text(const CheckpointCopy& copy) {
  return json{{"version", 1}, {"job", copy.job.value}, {"item", to_json(copy.item)}}.dump(1) + "\n";
}

CheckpointCopy copy_from_text(std::string_view text) {
  return parse_file(text, [](const json& j) {
    CheckpointCopy copy{JobId{cut_text(j, "job", kNodeNameMax)}, checkpoint_item_from_json(j.at("item"))};
    if (copy.item.hash.empty()) not_ours("a copy without a hash");
    return copy;
  });
}

}  // namespace rubato::elastic
