// Specs: torchelastic's specs file for petctl, as the person wrote it. Pure.
//
//   {"rdzv": {instance_type, accelerator, instance_role, key_pair, subnets, security_groups, …},
//    "worker": {the same, and docker_image, efs_file_system_id, s3_bucket, s3_prefix}}
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace rubato::petctl {

enum class Accelerator { kNone, kGpu };
std::string_view to_string(Accelerator accelerator);  // as in the file: "none", "gpu"

inline constexpr int kEbsVolumeGb = 128;  // petctl's default

// The hosts of one group.
struct HostSpecs {
  std::string instance_type;
  Accelerator accelerator = Accelerator::kNone;
  std::string instance_role;                 // name or ARN of an instance profile; empty: one is made (native form)
  std::string key_pair;                      // empty: none
  std::string image_id;                      // ours: an AMI instead of the one that goes with the accelerator
  std::vector<std::string> subnets;          // empty: the default VPC's (native form)
  std::vector<std::string> security_groups;  // ids or names; empty: one is made (native form)
  int ebs_volume_gb = kEbsVolumeGb;
  std::string max_spot_price;  // dollars an hour; empty: on demand
  std::string where;           // of the section, for errors
};

struct WorkerSpecs : HostSpecs {
  std::string docker_image;        // empty: the script runs on the host
  std::string efs_file_system_id;  // empty: none
  std::string s3_bucket, s3_prefix;
};

struct Specs {
  HostSpecs rdzv;
  WorkerSpecs worker;
  std::vector<std::string> notes;  // for people: keys that have no effect
};

// Throws a usage Error with file:line:column: no JSON, a key that is missing or unknown (with the nearest one), a value
// of the wrong type, a placeholder of the sample that was not filled in.
Specs parse_specs(std::string_view text, const std::string& file);

}  // namespace rubato::petctl
