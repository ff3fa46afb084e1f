// submit_manifest: what `kubectl apply -f` does with a file, without kubectl.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "elasticjob/install.h"
#include "kubernetes/client.h"

namespace rubato::elasticjob {

// The documents of a YAML file, empty ones left out. Throws a usage Error that points at the line. Pure.
std::vector<nlohmann::json> read_documents(const std::string& text, const std::string& file);

// Which resource a document's apiVersion and kind are, as the server tells. Throws kNotFound, with the way to a CRD.
Task<kubernetes::Resource> find_resource(kubernetes::Client& client, std::string api_version, std::string kind);

// What of an object the server would not keep: "spec.minReplica". A CRD drops what its schema does not name. Pure.
std::vector<std::string> dropped_fields(const nlohmann::json& sent, const nlohmann::json& kept);

// Applies the documents in their order; one of a custom resource with fields that its CRD does not have is refused.
// Those without a namespace go to `namespace_name`. One with a generateName is created, each time anew.
Task<void> submit_manifest(kubernetes::Client& client, std::vector<nlohmann::json> documents,
                           std::string namespace_name, Progress progress);

}  // namespace rubato::elasticjob
