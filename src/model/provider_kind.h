// ProviderKind: all there is to know of one kind of provider (`provider: {type: NAME}`) without asking it: its traits,
// the keys of its section, its defaults. Whoever does something else for some providers asks for a trait, never for a
// name.
//
// Each kind lives in a folder of src/clouds; src/clouds/registry.cc is the list, and the one place to add one to.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/config_keys.h"
#include "model/notice_source.h"
#include "model/resources.h"

namespace rubato {

class ConfigSection;
struct ClusterFile;
struct ProviderConfig;

// What Ray's files mean without node types: the two types of its defaults.
struct DefaultTypes {
  std::string head = "ray.head.default", worker = "ray.worker.default";
  nlohmann::ordered_json head_config = nlohmann::ordered_json::object();
  nlohmann::ordered_json worker_config = nlohmann::ordered_json::object();
  Resources resources;
};

// What is known of a machine by its node_config alone.
struct MachineOffer {
  Resources resources;
  double price_per_hour = 0;  // on demand
};

struct ProviderKind {
  std::string_view type;
  // ---- traits ----
  std::string_view supported_as;      // how people are told of it; empty: its files are understood, nothing is made
  bool has_own_machines = false;      // the user's, and on already: they cost nothing unless the file gives a price
  bool names_hosts = false;           // the file names its hosts; without any, nodes are processes of this machine
  bool can_make_head = false;         // `up` has the head's machine made by it
  bool offers_spot = false;           // a machine can be had on a spot market
  NoticeService notices = NoticeService::kNone;  // how its machines hear that they will be taken away
  bool runs_program = false;          // somebody's program answers for it
  bool has_regions = false;           // region, zones and stopped nodes are resolved for people
  bool has_open_section = false;      // keys that we do not know are the provider's, and passed on without a word
  bool caches_stopped_nodes = false;  // the default of provider.cache_stopped_nodes
  // ---- defaults ----
  std::string_view ssh_user;           // empty: who runs us
  std::string_view region, zone;       // the zone only where the file names no region
  std::string_view instance_type_key;  // of node_config: which machine; for Ray's available_instance_types
  // ---- its own words ----
  std::span<const ConfigKey> keys;  // of its section
  // Each may be null: nothing of its own.
  DefaultTypes (*default_types)() = nullptr;
  nlohmann::json (*compile)(const ClusterFile& file) = nullptr;  // what the provider is told; null: its section
  bool (*asks_for_spot)(const nlohmann::ordered_json& node_config) = nullptr;
  void (*read)(const ConfigSection& top, ProviderConfig& out) = nullptr;  // after what all have; adds findings
  std::optional<MachineOffer> (*offer_of)(const nlohmann::ordered_json& node_config) = nullptr;

  bool is_supported() const { return !supported_as.empty(); }
};

// Of every type that a file may name, in the order in which people are told of them.
std::span<const ProviderKind* const> provider_kinds();
// The keys of provider that belong to no kind alone.
std::span<const ConfigKey> common_provider_keys();

// For a type that is not in the list: a kind without any trait.
const ProviderKind& provider_kind(std::string_view type);

}  // namespace rubato
