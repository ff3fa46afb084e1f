#include "model/launch_spec.h"

namespace rubato {

std::string_view to_string(Backend backend) {
  switch (backend) {
    case Backend::kEmbedded: return "embedded";
    case Backend::kEtcd: return "etcd";
    case Backend::kStatic: return "static";
  }
  return "unknown";
}

}  // namespace rubato
