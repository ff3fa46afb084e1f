// The names of the scaling decision's values.
#include "policy/scale.h"

namespace rubato::policy {

std::string_view to_string(GangStrategy strategy) {
  switch (strategy) {
    case GangStrategy::kPack:
      return "PACK";
    case GangStrategy::kSpread:
      return "SPREAD";
    case GangStrategy::kStrictPack:
      return "STRICT_PACK";
    case GangStrategy::kStrictSpread:
      return "STRICT_SPREAD";
    case GangStrategy::kAnywhere:
      return "ANYWHERE";
  }
  return "";
}

std::string_view to_string(ScaleLimit limit) {
  switch (limit) {
    case ScaleLimit::kNone:
      return "none";
    case ScaleLimit::kTooLarge:
      return "too_large";
    case ScaleLimit::kTypeMax:
      return "node_types.max_workers";
    case ScaleLimit::kMax:
      return "max_workers";
    case ScaleLimit::kUpscalingSpeed:
      return "upscaling_speed";
    case ScaleLimit::kConcurrency:
      return "launch_concurrency";
    case ScaleLimit::kBlocked:
      return "no_capacity";
    case ScaleLimit::kOfferingLimit:
      return "offering_limit";
    case ScaleLimit::kSpotPolicy:
      return "spot";
    case ScaleLimit::kPriceCap:
      return "price_cap";
    case ScaleLimit::kBudget:
      return "budget_per_hour";
    case ScaleLimit::kDearer:
      return "dearer";
  }
  return "";
}

std::string_view to_string(ScaleReason::Kind kind) {
  switch (kind) {
    case ScaleReason::Kind::kLaunch:
      return "launch";
    case ScaleReason::Kind::kTerminate:
      return "terminate";
    case ScaleReason::Kind::kKeep:
      return "keep";
    case ScaleReason::Kind::kUnfulfilled:
      return "unfulfilled";
    case ScaleReason::Kind::kCost:
      return "cost";
  }
  return "";
}

}  // namespace rubato::policy
