#include "model/launch_spec.h"

namespace rubato {

std::string_view to_string(Backend backend) {
  switch (backend) {
    case Backend::kEmbedded:
      return "embedded";
    case Backend::kEtcd:
      return "etcd";
    case Backend::kStatic:
      return "static";
  }
  return "unknown";
}

std::string_view to_string(ProgramKind kind) {
  switch (kind) {
    case ProgramKind::kScript:
      return "script";
    case ProgramKind::kModule:
      return "module";
    case ProgramKind::kRunPath:
      return "run-path";
    case ProgramKind::kBinary:
      return "binary";
  }
  return "unknown";
}

}  // namespace rubato
