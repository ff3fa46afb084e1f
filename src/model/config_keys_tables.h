// The parts of the table of config_keys.h. Include it nowhere else.
#pragma once

#include <vector>

#include "model/config_keys.h"

namespace rubato {

const std::vector<ConfigKey>& our_keys();  // our form, as far as it is not the provider's (provider_kind.h)
const std::vector<ConfigKey>& ray_keys();  // Ray's other words, modern and legacy

}  // namespace rubato
