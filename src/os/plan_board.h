// RealInPlaceHost: plan boards and meeting stores of this machine (world/in_place.h).
#pragma once

#include "os/runtime.h"
#include "world/files.h"
#include "world/in_place.h"

namespace rubato::os {

class RealInPlaceHost final : public InPlaceHost {
 public:
  // Both outlive it and what it makes.
  RealInPlaceHost(Runtime& runtime, Files& files) : runtime_(runtime), files_(files) {}
  std::unique_ptr<PlanBoard> make_board(std::function<void()> on_report) override;
  std::unique_ptr<MeetingStore> open_store(const std::string& token, bool loopback) override;

 private:
  Runtime& runtime_;
  Files& files_;
};

}  // namespace rubato::os
