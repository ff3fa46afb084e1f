// Which resources are counted in bytes; all others are in thousandths.
#pragma once

#include <string_view>

#include "model/resources.h"

namespace rubato {

// Ray's part of a node's memory for shared objects; its files and states give it in bytes.
inline constexpr std::string_view kObjectStoreMemory = "object_store_memory";

inline bool counted_in_bytes(std::string_view name) { return name == kMemory || name == kObjectStoreMemory; }

}  // namespace rubato
