#include "model/provider_kind.h"

namespace rubato {

const ProviderKind& provider_kind(std::string_view type) {
  for (const ProviderKind* kind : provider_kinds()) {
    if (kind->type == type) return *kind;
  }
  // What it needs of its section, nobody here knows.
  static constexpr ProviderKind kUnknown{.type = "", .has_open_section = true};
  return kUnknown;
}

}  // namespace rubato
