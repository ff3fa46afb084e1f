// Flags that many commands have.
#pragma once

#include "terminal/flags.h"

namespace rubato::cli {

Flag cluster_flag(std::string_view group = {});
Flag json_flag(std::string_view group = {});

}  // namespace rubato::cli
