// Manifests as values: a job of any kind, a pod; and a job's status as its kind writes it. Pure.
//
// Nothing here throws for what a user wrote: a job that cannot be run has `invalid` set, and says so in its status.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "elasticjob/job.h"

namespace rubato::elasticjob {

inline constexpr const char* kLabelKind = "rubato.dev/job-kind";
inline constexpr const char* kLabelJob = "rubato.dev/job";
inline constexpr const char* kLabelIndex = "rubato.dev/worker-index";
inline constexpr const char* kAnnotationJob = "rubato.dev/job-name";  // where it is longer than a label may be
inline constexpr const char* kAnnotationAttempt = "rubato.dev/attempt";
inline constexpr const char* kAnnotationHost = "rubato.dev/rendezvous-host";
inline constexpr const char* kAnnotationGroup = "rubato.dev/group";
inline constexpr const char* kAnnotationSize = "rubato.dev/group-size";
inline constexpr const char* kAnnotationContainer = "rubato.dev/container";  // the one that trains
inline constexpr const char* kAnnotationRange = "rubato.dev/nnodes";         // MIN:MAX that its launcher was given
inline constexpr const char* kAnnotationTemplate = "rubato.dev/template-hash";
inline constexpr const char* kAnnotationReplicas =
    "rubato.dev/replicas";  // of an AdaptDLJob, which has no field for it
inline constexpr const char* kAnnotationLauncher = "rubato.dev/launcher";  // of an adopted job: "rubato"
inline constexpr const char* kAnnotationFailures = "rubato.dev/failures";  // of an adopted job

// Of the one word that we write into the status of a job that another controller runs.
inline constexpr const char* kAsideManager = "rubato-aside";
inline constexpr const char* kAsideReason = "OtherController";

// Of any kind.
Job read_job(Kind kind, const nlohmann::json& document);

Pod read_pod(const nlohmann::json& document);

// The merge patch of the status subresource; null: the API says all of it already.
nlohmann::json status_patch(const Job& job, const Status& status);
// The patch of its metadata where the kind's status has no room for our count of failures; null: none is needed.
nlohmann::json metadata_patch(const Job& job, const Status& status);

// What all kinds share.
void read_metadata(Job& job, const nlohmann::json& document);
void settle_replicas(Job& job, std::optional<int64_t> replicas, std::optional<int64_t> least,
                     std::optional<int64_t> most);
void check_template(Job& job, const nlohmann::json& pod_template);
nlohmann::json own_status(const Job& job, const Status& status);
nlohmann::json conditions_document(const Status& status);
std::vector<Condition> read_conditions(const nlohmann::json& status);
std::string selector_of(const Job& job);  // of its pods

}  // namespace rubato::elasticjob
