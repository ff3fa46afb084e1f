// The objects that a job gets: its pods and the services by which they find each other. Pure.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "elasticjob/decide.h"

namespace rubato::elasticjob {

// How our binary comes into a pod.
struct LauncherDelivery {
  std::string image;  // an init container of it copies the binary; empty: it is in the image already
  std::string path;   // where the image has it, when it is there
};

// `supervisor_url`: where workers report hints (supervisor.h); empty: nowhere.
nlohmann::json make_pod(const Job& job, const MakePod& order, const LauncherDelivery& delivery,
                        const std::string& supervisor_url = {});

// Headless, with the addresses of pods that are not ready: one for all pods of a group with our launcher; one for each
// pod, of its name, where the kind's own controller makes those.
std::vector<nlohmann::json> make_services(const Job& job);

// For `kubectl describe`.
nlohmann::json make_event(const Job& job, bool is_warning, const std::string& reason, const std::string& message,
                          const std::string& suffix, WallTime now);

}  // namespace rubato::elasticjob
