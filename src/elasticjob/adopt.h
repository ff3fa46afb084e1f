// The kinds of other projects, read as our own jobs, and their status written as their controllers wrote it. Pure.
//
//   elastic.pytorch.org/v1alpha1 ElasticJob     torchelastic's operator (unmaintained since 2021)
//   adaptdl.petuum.com/v1 AdaptDLJob            AdaptDL's scheduler
//   kubeflow.org/v1 PyTorchJob                  with spec.elasticPolicy; one without is left alone
//
// Their pods keep command and arguments as the kind's own controller would build them; the annotation
// rubato.dev/launcher: rubato puts our launcher in the place of theirs.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "elasticjob/decide.h"

namespace rubato::elasticjob {

void read_torch_elastic_job(Job& job, const nlohmann::json& document);
void read_adaptdl_job(Job& job, const nlohmann::json& document);
void read_pytorch_job(Job& job, const nlohmann::json& document);

// A variable of a container; what the manifest sets itself stays.
void add_env(nlohmann::json& container, const std::string& name, const std::string& value);

nlohmann::json adopted_status_patch(const Job& job, const Status& status);

// The pod template as the kind's own controller would build it for one worker, without names and labels.
nlohmann::json build_adopted_template(const Job& job, nlohmann::json pod_template, const MakePod& order);

}  // namespace rubato::elasticjob
