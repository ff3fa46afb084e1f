// The JSON of checkpoints' items: in messages, in the head's index, in a node's ledger.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "elastic/checkpoints.h"

namespace rubato::elastic {

nlohmann::json to_json(const CheckpointItem& item);
nlohmann::json to_json(const std::vector<CheckpointItem>& items);
// Throw an Error, or what nlohmann throws, for what is none: a name that leads elsewhere, a hash that is none.
CheckpointItem checkpoint_item_from_json(const nlohmann::json& j);
std::vector<CheckpointItem> checkpoint_items_from_json(const nlohmann::json& list);

// Whole files. An index or a ledger that cannot be read is none: throws an Error, never anything else.
std::string index_text(const std::vector<CheckpointItem>& items);
std::vector<CheckpointItem> index_from_text(std::string_view text);
std::string ledger_text(const CheckpointLedger& ledger);
CheckpointLedger ledger_from_text(std::string_view text);
std::string copy_text(const CheckpointCopy& copy);
CheckpointCopy copy_from_text(std::string_view text);

}  // namespace rubato::elastic
